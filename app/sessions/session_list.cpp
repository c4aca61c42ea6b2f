#include "app/sessions/session_list.h"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <nlohmann/json.hpp>
#include <system_error>

#include "app/options.h"
#include "app/ui/sanitizer.h"
#include "app/ui/table.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

std::string time_text(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm local{};
  if (::localtime_r(&time, &local) == nullptr) return "?";
  std::array<char, 64> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &local)};
}

std::uintmax_t size_of(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  return error ? 0 : bytes;
}

std::int32_t tokens_here(const Conversation& conversation) {
  const std::int32_t here = conversation.here();
  return here == 0 ? 0 : conversation.turn(here).exchange.tokens;
}

/// Calls use(name, bytes, session) or damaged(name, bytes, why) for each.
template <typename Use, typename Damaged>
void for_each(const SessionFolder& folder, Use use, Damaged damaged) {
  for (const std::string& name : folder.names()) {
    const std::uintmax_t bytes = size_of(folder.path_of(name));
    try {
      use(name, bytes, folder.read(name).record);
    } catch (const Error& error) {
      damaged(name, bytes, error.what());
    }
  }
}

}  // namespace

std::string session_list_text(const SessionFolder& folder) {
  Table table{.columns = {{"session"},
                          {"turns", Align::right},
                          {"tokens", Align::right},
                          {"size", Align::right},
                          {"saved"},
                          {"model"}},
              .rows = {}};
  for_each(
      folder,
      [&](const std::string& name, std::uintmax_t bytes, const SessionRecord& record) {
        table.rows.push_back({name, fmt::format("{}", record.conversation.turns()),
                              fmt::format("{}", tokens_here(record.conversation)),
                              bytes_text(bytes), time_text(record.saved_s),
                              sanitized_line(record.model)});
      },
      [&](const std::string& name, std::uintmax_t bytes, const std::string&) {
        table.rows.push_back({name, "", "", bytes_text(bytes), "", "can't be read"});
      });
  return table.rows.empty() ? "no sessions\n" : plain_text(table);
}

Json session_list_json(const SessionFolder& folder) {
  Json list = Json::array();
  for_each(
      folder,
      [&](const std::string& name, std::uintmax_t bytes, const SessionRecord& record) {
        list.push_back({{"name", name},
                        {"turns", record.conversation.turns()},
                        {"tokens", tokens_here(record.conversation)},
                        {"bytes", bytes},
                        {"saved", record.saved_s},
                        {"model", record.model}});
      },
      [&](const std::string& name, std::uintmax_t bytes, const std::string& why) {
        list.push_back({{"name", name}, {"bytes", bytes}, {"error", why}});
      });
  return list;
}

std::string transcript(const Conversation& conversation) {
  std::string text;
  const auto add = [&](const char* who, const std::string& said) {
    text.append(text.empty() ? "" : "\n").append(who).append(": ").append(said);
    if (!said.ends_with('\n')) text += '\n';
  };
  if (!conversation.system().empty()) add("system", conversation.system());
  for (const std::int32_t turn : conversation.path(conversation.here())) {
    add("user", conversation.turn(turn).exchange.message);
    add("assistant", conversation.turn(turn).exchange.answer_text);
  }
  return text;
}

}  // namespace hyb::app
