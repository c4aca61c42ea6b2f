// Where a model folder keeps its chat template (chat_template.h).
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/text/chat_template.h"

namespace hyb {
namespace {

constexpr std::size_t file_bytes_max = std::size_t{16} << 20;

/// Nothing if there is no such file.
std::optional<std::string> read_small_file(const std::filesystem::path& path) {
  if (!is_listed(path)) return std::nullopt;
  return read_whole_file(path, file_bytes_max);
}

struct Named {
  std::string name;
  std::string text;
};

/// `chat_template` of a JSON file: a string is the one named default.
std::vector<Named> templates_in(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_small_file(path);
  if (!text) return {};
  const Json json = parse_json(*text, path.string(), {.python_numbers = true});
  const auto fail = [&] [[noreturn]] () {
    throw Error(ErrorKind::model,
                path.string() + ": chat_template is a string or a list of {name, template}");
  };
  const auto found = json.find("chat_template");
  if (!json.is_object() || found == json.end() || found->is_null()) return {};
  if (found->is_string()) return {{"default", found->get<std::string>()}};
  if (!found->is_array()) fail();
  std::vector<Named> named;
  for (const Json& entry : *found) {
    const bool good = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                      entry.contains("template") && entry["template"].is_string();
    if (!good) fail();
    named.push_back({entry["name"].get<std::string>(), entry["template"].get<std::string>()});
  }
  return named;
}

/// Earlier ones win over later ones of the same name.
std::vector<Named> all_templates(const std::filesystem::path& folder) {
  std::vector<Named> named;
  if (auto text = read_small_file(folder / "chat_template.jinja")) {
    named.push_back({"default", std::move(*text)});
  }
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder / "additional_chat_templates", error)) {
    if (entry.path().extension() != ".jinja") continue;
    if (auto text = read_small_file(entry.path())) {
      named.push_back({entry.path().stem().string(), std::move(*text)});
    }
  }
  for (const char* file : {"tokenizer_config.json", "chat_template.json"}) {
    for (Named& entry : templates_in(folder / file)) named.push_back(std::move(entry));
  }
  return named;
}

}  // namespace

std::optional<std::string> find_chat_template(const std::filesystem::path& folder,
                                              std::string_view name) {
  std::vector<Named> named = all_templates(folder);
  std::string known;
  const Named* fallback = nullptr;
  for (const Named& entry : named) {
    if (entry.name == name) return entry.text;
    if (entry.name == "default" && fallback == nullptr) fallback = &entry;
    known += (known.empty() ? "" : ", ") + entry.name;
  }
  if (name == "tool_use" && fallback != nullptr) return fallback->text;
  if (name == "default" || named.empty()) return std::nullopt;
  throw Error(ErrorKind::usage, folder.string() + ": no chat template is named '" +
                                    std::string(name) + "'; there are: " + known);
}

}  // namespace hyb
