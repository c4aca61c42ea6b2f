#include "app/options/settings_file.h"

#include <fnmatch.h>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/base/texts.h"
#include "app/options/command_line.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "core/io/home.h"

namespace hyb::app {
namespace {

constexpr std::string_view config_flag = "--config";

/// Options that no settings file may give, since they belong to one call.
constexpr std::string_view words_of_a_call =
    " config help prompt prompt-file messages session continue ";

[[noreturn]] void refuse(const std::string& source, int line, std::string_view text) {
  throw Error(ErrorKind::model, fmt::format("{}:{}: {}", source, line, text));
}

/// Not CLI11's reader: that cuts a text at a # in it, and knows no lines.
class TomlReader {
 public:
  TomlReader(const std::string& text, const std::string& source) : text_(text), source_(source) {
    std::erase(text_, '\r');
  }

  std::vector<FileSetting> settings() {
    std::string section;
    std::vector<FileSetting> all;
    for (skip_lines(); at_ < text_.size(); skip_lines()) {
      if (take('[')) {
        section = name("]");
        if (section.empty() || !take(']')) fail("a section is [NAME]");
        end_line();
        continue;
      }
      FileSetting one = {.section = section, .key = name("="), .line = line_};
      if (one.key.empty() || !take('=')) fail("a setting is KEY = VALUE");
      std::ranges::replace(one.key, '_', '-');
      values(one);
      end_line();
      for (const FileSetting& other : all) {
        if (other.section == section && other.key == one.key) {
          refuse(source_, one.line, fmt::format("{} is in line {} already", one.key, other.line));
        }
      }
      all.push_back(std::move(one));
    }
    return all;
  }

 private:
  [[noreturn]] void fail(std::string_view text) const { refuse(source_, line_, text); }

  bool begins(std::string_view word) const { return text_.compare(at_, word.size(), word) == 0; }

  bool take(char letter) {
    skip(" \t");
    if (at_ >= text_.size() || text_[at_] != letter) return false;
    ++at_;
    return true;
  }

  void skip(std::string_view letters) {
    at_ = std::min(text_.find_first_not_of(letters, at_), text_.size());
  }

  /// And a comment.
  void skip_blanks() {
    skip(" \t");
    if (begins("#")) at_ = std::min(text_.find('\n', at_), text_.size());
  }

  void end_line() {
    skip_blanks();
    if (at_ < text_.size() && text_[at_] != '\n')
      fail("after a value or a section the line ends, or has a comment");
  }

  void skip_lines() {
    for (skip_blanks(); begins("\n"); skip_blanks()) {
      ++at_;
      ++line_;
    }
  }

  std::string name(std::string_view end) {
    skip(" \t");
    if (begins("\"") || begins("'")) return quoted();
    const std::size_t stop =
        std::min(text_.find_first_of(std::string(end) + "\n", at_), text_.size());
    const std::string_view word = std::string_view(text_).substr(at_, stop - at_);
    at_ = stop;
    return std::string(trim(word));
  }

  /// A text in one quote or three; those of " know backslashes, as those of JSON do.
  std::string quoted() {
    constexpr std::string_view plain = "\n\t\"\\", coded = "nt\"\\";
    const char quote = text_[at_];
    const bool is_long = begins(std::string(3, quote));
    const std::string end(is_long ? 3 : 1, quote);
    at_ += end.size();
    std::string json = "\"";
    for (bool is_first = true; !begins(end); is_first = false) {
      if (at_ >= text_.size() || (!is_long && text_[at_] == '\n')) fail("a quote is not closed");
      const char letter = text_[at_++];
      if (letter == '\n') ++line_;
      if (letter == '\n' && is_first) continue;
      const std::size_t code = plain.find(letter);
      const bool is_coded = letter == '\\' && quote == '"' && at_ < text_.size();
      if (is_coded || code != std::string_view::npos) json += '\\';
      json += is_coded ? text_[at_++] : code == std::string_view::npos ? letter : coded[code];
    }
    at_ += end.size();
    const Json text = Json::parse(json + '"', nullptr, false);
    if (!text.is_string()) fail("a backslash in a text is none of \\n, \\t, \\\", \\\\, \\uXXXX");
    return text;
  }

  void value(FileSetting& setting) {
    if (begins("\"") || begins("'")) return setting.values.push_back(quoted());
    const std::size_t end = std::min(text_.find_first_of(",]#\n", at_), text_.size());
    const std::string word(trim(std::string_view(text_).substr(at_, end - at_)));
    setting.is_switch = word == "true" || word == "false";
    if (!setting.is_switch && !parse_number<double>(word)) {
      fail(fmt::format("{}: a text goes into quotes", setting.key));
    }
    at_ = end;
    setting.values.push_back(word);
  }

  void values(FileSetting& setting) {
    if (!take('[')) return value(setting);
    for (skip_lines(); !take(']'); skip_lines()) {
      if (at_ >= text_.size()) fail(fmt::format("{}: a list is not closed", setting.key));
      value(setting);
      skip_lines();
      if (!take(',') && !begins("]")) fail(fmt::format("{}: a comma is missing", setting.key));
    }
  }

  std::string text_;
  const std::string& source_;
  std::size_t at_ = 0;
  int line_ = 1;
};

bool takes_settings(const CLI::App* command) {
  return command->get_option_no_throw(std::string(config_flag)) != nullptr;
}

/// Why `key` is no setting of any of the commands; empty: it is one.
std::string trouble_with(const std::string& key, const std::vector<const CLI::App*>& commands) {
  if (words_of_a_call.find(fmt::format(" {} ", key)) != std::string_view::npos) {
    return key + " is for the command line alone";
  }
  std::vector<std::string> known;
  for (const CLI::App* const command : commands) {
    for (const CLI::Option* const option : command->get_options()) {
      const std::vector<std::string>& names = option->get_lnames();
      known.insert(known.end(), names.begin(), names.end());
    }
  }
  if (std::ranges::count(known, key) > 0) return "";
  const std::string_view nearest = nearest_name(key, known);
  return fmt::format("unknown setting {}{}", quote_name(key),
                     nearest.empty() ? "; hyb run --help all has the options that are settings"
                                     : fmt::format(", the nearest is {}", nearest));
}

}  // namespace

std::vector<FileSetting> parse_settings(const std::string& text, const std::string& source) {
  return TomlReader(text, source).settings();
}

bool is_section_for(const std::string& section, const std::string& model) {
  const auto matches = [&](const std::string& name) {
    return ::fnmatch(section.c_str(), name.c_str(), 0) == 0 ||
           ::fnmatch(section.c_str(), name.substr(0, name.find_first_of("@:")).c_str(), 0) == 0;
  };
  const std::string whole = model.substr(0, model.find_last_not_of('/') + 1);
  const std::string last = whole.substr(whole.rfind('/') + 1);
  const std::string stem = last.ends_with(".gguf") ? last.substr(0, last.size() - 5) : last;
  return matches(whole) || matches(last) || matches(stem);
}

void add_settings_option(CLI::App& cli) {
  cli.add_option_function<std::string>(
         std::string(config_flag), [](const std::string&) {},
         "settings of chat and run for what the command line leaves open: $HYB_CONFIG, else "
         "~/.config/hyb/config.toml. Lines as model = \"org/name\" or temperature = 0.7, by the "
         "names of long options; [chat] and [run] begin what is for one of them, [NAME] what is "
         "for models of this name, whole or its last part, with * and ?. No other command reads "
         "it; /dev/null: no settings")
      ->type_name("FILE");
}

SettingsFile::SettingsFile(const CLI::App& command, const Environment& environment)
    : path_(environment.config_file.value_or("")), home_(environment.hub.home) {
  const CLI::Option* const option = command.get_option_no_throw(std::string(config_flag));
  const bool is_given = option != nullptr && option->count() > 0;
  if (is_given) path_ = option->as<std::string>();
  std::error_code ignored;
  is_there_ = is_given || environment.names_config_file || std::filesystem::exists(path_, ignored);
  if (!is_there_ || path_.empty()) return;
  const std::string text = path_ == "/dev/null" ? "" : read_text_file(path_, 1 << 20);
  check_utf8(text, path_.string());
  settings_ = parse_settings(text, path_.string());
  check(command.get_parent() == nullptr ? command : *command.get_parent());
}

void SettingsFile::check(const CLI::App& root) const {
  for (const FileSetting& setting : settings_) {
    std::vector<const CLI::App*> commands = root.get_subcommands(takes_settings);
    const auto named = root.get_subcommands(
        [&](const CLI::App* command) { return command->get_name() == setting.section; });
    if (!named.empty()) {
      if (std::ranges::count(commands, named.front()) == 0) {
        refuse(path_.string(), setting.line,
               fmt::format("[{}]: only chat and run have settings", setting.section));
      }
      commands = {named.front()};
    }
    const std::string trouble = trouble_with(setting.key, commands);
    if (!trouble.empty()) refuse(path_.string(), setting.line, trouble);
  }
}

void SettingsFile::apply(CLI::App& command, const FileSetting& setting) const {
  const std::string name = "--" + setting.key;
  CLI::Option* const option = command.get_option_no_throw(name);
  if (option == nullptr) return;
  // Also as a word, and before the command.
  for (const CLI::Option* const same : {option, command.get_option_no_throw(setting.key),
                                        command.get_parent()->get_option_no_throw(name)}) {
    if (same != nullptr && same->count() > 0) return;
  }
  for (const CLI::Option* const other : option->get_excludes()) {
    if (other->count() > 0) return;
  }
  try {
    const bool is_flag = option->get_items_expected_max() == 0;
    for (std::string value : setting.values) {
      if (setting.is_switch && !is_flag) value = value == "true" ? "on" : "off";
      if (is_flag && !setting.is_switch) throw CLI::ConversionError(value, name);
      if (value.starts_with("~/")) value = with_home(value, home_).string();
      option->add_result(value);
    }
    option->run_callback();
  } catch (const CLI::ParseError& error) {
    refuse(path_.string(), setting.line, value_text(error));
  } catch (const Error& error) {
    refuse(path_.string(), setting.line, error.what());
  }
  option->clear();
}

void SettingsFile::apply(CLI::App& command) const {
  for (const std::string& section : {std::string(), command.get_name()}) {
    for (const FileSetting& setting : settings_) {
      if (setting.section == section) apply(command, setting);
    }
  }
}

void SettingsFile::apply(CLI::App& command, const std::string& model) const {
  for (const FileSetting& setting : settings_) {
    const bool is_general = setting.section.empty() || setting.section == command.get_name();
    if (!is_general && is_section_for(setting.section, model)) apply(command, setting);
  }
}

void SettingsFile::try_all(CLI::App& root) const {
  for (CLI::App* const command : root.get_subcommands(takes_settings)) {
    for (const FileSetting& setting : settings_) apply(*command, setting);
  }
}

std::string SettingsFile::text() const {
  std::string text, section;
  for (const FileSetting& setting : settings_) {
    const bool is_same = setting.section == section;
    if (!text.empty()) text += is_same ? ", " : "; ";
    if (!is_same) text += fmt::format("[{}] ", setting.section);
    section = setting.section;
    text += fmt::format("{} = {}", setting.key, fmt::join(setting.values, ", "));
  }
  return text;
}

Json SettingsFile::json() const {
  Json list = Json::array();
  for (const FileSetting& setting : settings_) {
    list.push_back({{"section", setting.section},
                    {"key", setting.key},
                    {"values", setting.values},
                    {"line", setting.line}});
  }
  return list;
}

}  // namespace hyb::app
