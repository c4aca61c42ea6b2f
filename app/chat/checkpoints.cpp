#include "app/chat/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "app/ui/sanitizer.h"
#include "app/ui/table.h"
#include "app/ui/text_width.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

constexpr std::size_t name_bytes_max = 40;

[[noreturn]] void refuse(const std::string& text) { throw Error(ErrorKind::usage, text); }

std::optional<std::int32_t> number_of(std::string_view text) {
  std::int32_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// One line of at most so many columns.
std::string excerpt(const std::string& text, int columns) {
  return cut_to_columns(sanitized_line(text.substr(0, 400)), columns);
}

void check_name(const std::string& name) {
  if (name.size() > name_bytes_max || name.find_first_of(" \t\n") != std::string::npos) {
    refuse(fmt::format("/fork: a name is one word of at most {} bytes", name_bytes_max));
  }
  if (name.find_first_not_of("0123456789") == std::string::npos) {
    refuse("/fork: '" + name + "' is a number, which /goto would take for a turn");
  }
}

std::string free_name(const Conversation& conversation) {
  for (int i = 1;; ++i) {
    std::string name = fmt::format("fork-{}", i);
    if (!conversation.branches().contains(name)) return name;
  }
}

std::string branches_at(const Conversation& conversation, std::int32_t turn) {
  std::string names;
  for (const auto& [name, end] : conversation.branches()) {
    if (end != turn) continue;
    const bool is_here = name == conversation.branch();
    names.append(names.empty() ? "" : " ").append(is_here ? "*" : "").append(name);
  }
  return names;
}

}  // namespace

std::string place_text(const Conversation& conversation) {
  const std::int32_t here = conversation.here();
  const std::string branch = "branch " + conversation.branch() + ", ";
  if (here == 0) return branch + "at the beginning";
  return branch + fmt::format("behind turn {}: {}", here,
                              excerpt(conversation.turn(here).exchange.message, 60));
}

std::string undo(Conversation& conversation, std::int32_t count) {
  const std::int32_t here = conversation.here();
  const auto spoken = static_cast<std::int32_t>(conversation.path(here).size());
  if (spoken == 0) refuse("/undo: nothing has been said yet");
  const std::int32_t taken = std::min(count, spoken);
  const std::int32_t first = conversation.before(taken - 1);
  conversation.go_to(conversation.before(taken));
  return fmt::format("took back {} of {} messages, from: {}; /goto {} brings them back", taken,
                     spoken, excerpt(conversation.turn(first).exchange.message, 60), here);
}

std::string fork(Conversation& conversation, const std::string& name) {
  const std::string chosen = name.empty() ? free_name(conversation) : name;
  check_name(chosen);
  const std::string left = conversation.branch();
  if (!conversation.fork(chosen)) refuse("/fork: there is a branch " + chosen + " already");
  return place_text(conversation) + fmt::format("; /goto {} goes back", left);
}

std::string go_to(Conversation& conversation, const std::string& place) {
  if (place.empty()) refuse("/goto: where to? /checkpoints lists turns and branches");
  if (const auto turn = number_of(place)) {
    if (*turn < 0 || *turn > conversation.turns()) {
      refuse(fmt::format("/goto: there is no turn {}, the last one is {}", *turn,
                         conversation.turns()));
    }
    conversation.go_to(*turn);
  } else if (!conversation.switch_to(place)) {
    refuse("/goto: there is no branch '" + place.substr(0, name_bytes_max) +
           "'; /checkpoints lists them");
  }
  return place_text(conversation);
}

std::string checkpoints_text(const Conversation& conversation, const Resumable& resumable) {
  if (conversation.turns() == 0) return "nothing has been said yet\n";
  Table table{.columns = {{"turn", Align::right},
                          {"behind", Align::right},
                          {"tokens", Align::right},
                          {"kept", Align::right},
                          {"branch"},
                          {"message"}},
              .rows = {}};
  for (std::int32_t number = 1; number <= conversation.turns(); ++number) {
    const auto& [parent, exchange] = conversation.turn(number);
    table.rows.push_back({fmt::format("{}", number), fmt::format("{}", parent),
                          fmt::format("{}", exchange.tokens),
                          resumable ? fmt::format("{}", resumable(number)) : "",
                          branches_at(conversation, number), excerpt(exchange.message, 40)});
  }
  if (!resumable) {
    table.columns.erase(table.columns.begin() + 3);
    for (auto& row : table.rows) row.erase(row.begin() + 3);
  }
  std::string text = plain_text(table);
  if (conversation.here() == 0) text += place_text(conversation) + "\n";
  return text;
}

}  // namespace hyb::app
