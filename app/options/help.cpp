#include "app/options/help.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "app/options/cli_outline.h"
#include "app/options/command_line.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/io/file.h"

namespace hyb::app {
namespace {

/// Columns of names; what is said of them begins after these.
constexpr std::size_t left_width = 26;
constexpr int width_min = 50;

/// Columns of the line that `text` ends with. All that help says is ASCII.
std::size_t last_columns(const std::string& text) { return text.size() - (text.rfind('\n') + 1); }

/// Appends words to that line; where `width` is reached, lines go on after `indent` spaces.
void append_words(std::string& text, std::string_view words, std::size_t indent, int width) {
  WordWrap wrap(std::string(indent, ' '), static_cast<int>(last_columns(text)));
  text += wrap.push(words, width);
  text += wrap.flush();
}

std::string entry(const std::string& left, std::string_view about, int width) {
  std::string text = "  ";
  append_words(text, left, 6, width);
  if (last_columns(text) + 2 > left_width) text += '\n';
  text.append(left_width - last_columns(text), ' ');
  append_words(text, about, left_width, width);
  return text + '\n';
}

/// In the short help one short name and one long one.
std::string names_text(const OptionOutline& option, bool is_short) {
  if (option.names.empty()) return option.positional;
  std::vector<std::string> names;
  for (const std::string& name : option.names) {
    const bool is_another = !names.empty() && names.back().starts_with("--");
    if (!is_short || !is_another) names.push_back(name);
  }
  return fmt::format("{} {}", fmt::join(names, ", "), option.value);
}

std::string usage_line(const std::string& name, const CommandOutline& command, int width) {
  std::string words = name;
  for (const OptionOutline& option : command.options) {
    if (!option.names.empty()) continue;
    const bool is_plain = option.is_required || option.positional.front() == '[';
    words += is_plain ? ' ' + option.positional : fmt::format(" [{}]", option.positional);
    if (option.is_list && option.positional.front() != '[') words += "...";
  }
  if (words == name && !command.commands.empty()) words += " COMMAND";
  std::string text = "Usage: ";
  append_words(text, words + " [OPTION]...", 9, width);
  return text + '\n';
}

/// Commands below their headings.
std::string command_entries(const CommandOutline& command, int width) {
  std::vector<CommandOutline> commands = command.commands;
  std::stable_sort(
      commands.begin(), commands.end(),
      [](const CommandOutline& a, const CommandOutline& b) { return a.group < b.group; });
  std::string text, heading;
  for (const CommandOutline& one : commands) {
    if (one.group != heading) text += fmt::format("\n{}:\n", one.group);
    heading = one.group;
    text += entry(one.name, one.about, width);
  }
  return text;
}

std::string option_entries(const CommandOutline& command, std::string_view topic, int width) {
  const bool is_short = topic.empty();
  std::string text;
  for (const OptionSection& section : sections_of(command, topic)) {
    text += section.title.empty() ? "\n" : fmt::format("\n{}:\n", section.title);
    for (const OptionOutline* const option : section.options) {
      text +=
          entry(names_text(*option, is_short), is_short ? option->short_help : option->help, width);
    }
  }
  return text;
}

}  // namespace

std::string take_help_topic(std::vector<std::string>& words) {
  constexpr std::string_view with_topic = "--help=";
  const auto end = std::find(words.begin(), words.end(), "--");
  const auto help = std::find_if(words.begin(), end, [&](const std::string& word) {
    return word == "--help" || word == "-h" || word.starts_with(with_topic);
  });
  if (help == end) return "";
  std::string topic;
  if (help->starts_with(with_topic)) {
    topic = help->substr(with_topic.size());
    *help = "--help";
  } else if (const auto next = help + 1;
             next != end &&
             (*next == "all" || std::ranges::count(help_groups(), *next, &HelpGroup::name) > 0)) {
    topic = *next;
    words.erase(next);
  }
  return topic;
}

std::vector<std::string> topics_of(const CommandOutline& command) {
  std::vector<std::string> topics;
  for (const HelpGroup& group : help_groups()) {
    if (std::ranges::count(command.options, group.name, &OptionOutline::group) > 0) {
      topics.emplace_back(group.name);
    }
  }
  return topics;
}

std::string help_text(const CLI::App& cli, std::string_view topic, int width) {
  const CLI::App& typed = typed_command(cli);
  const std::string name = typed_name_of(typed);
  const CommandOutline command = cli_outline(typed);
  const bool is_group = !topic.empty() && topic != "all";
  const std::string topics = fmt::format("{}", fmt::join(topics_of(command), ", "));
  width = std::max(width, width_min);
  const std::string options = option_entries(command, topic, width);
  if (options.empty() && is_group) {
    throw Error(ErrorKind::usage, fmt::format("{} has no options of the group {}; there are {}",
                                              name, quote_name(topic), topics));
  }
  std::string text;
  append_words(text, command.about, 0, width);
  text += "\n" + usage_line(name, command, width);
  if (!is_group) text += command_entries(command, width);
  text += options;
  if (!is_group) text += "\nExamples:\n";
  for (const std::string_view example : command_help(command.name).examples) {
    if (!is_group) text += fmt::format("  {}\n", example);
  }
  if (topic == "all") return text;
  text += '\n';
  append_words(text,
               fmt::format("More options: {0} --help all, or {0} --help GROUP: {1}.", name, topics),
               0, width);
  return text + '\n';
}

}  // namespace hyb::app
