#include "app/chat/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <optional>

#include "app/white_space.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

using Kind = SlashCommand::Kind;

enum class Takes : std::uint8_t { nothing, text, count, place };

struct Row {
  Kind kind;
  Takes takes;
  std::array<std::string_view, 3> names;  ///< the first is the one to advertise
  std::string_view usage;
  std::string_view about;
};

constexpr std::array rows = {
    Row{Kind::help, Takes::nothing, {"/help", "/?"}, "/help", "this list"},
    Row{Kind::clear,
        Takes::nothing,
        {"/clear", "/new"},
        "/clear",
        "forget the conversation, keep the system prompt"},
    Row{Kind::system,
        Takes::text,
        {"/system"},
        "/system [TEXT|none]",
        "show, replace or remove the system prompt"},
    Row{Kind::think,
        Takes::text,
        {"/think"},
        "/think [on|off|default]",
        "whether the model thinks before it answers"},
    Row{Kind::set,
        Takes::text,
        {"/set"},
        "/set [NAME [VALUE|default]]",
        "show or change how answers are drawn"},
    Row{Kind::stats, Takes::nothing, {"/stats"}, "/stats", "tokens and times of the last answer"},
    Row{Kind::regen,
        Takes::count,
        {"/regen"},
        "/regen [N]",
        "answer the last message anew with another seed; N: go N messages back"},
    Row{Kind::undo, Takes::count, {"/undo"}, "/undo [N]", "take the last N messages back"},
    Row{Kind::edit,
        Takes::place,
        {"/edit"},
        "/edit [N [TEXT]]",
        "say message N (the last one) differently and go on from there"},
    Row{Kind::fork,
        Takes::text,
        {"/fork"},
        "/fork [NAME]",
        "go on in a branch of its own; this one stays as it is"},
    Row{Kind::go_to,
        Takes::text,
        {"/goto"},
        "/goto NAME|N",
        "go on in another branch, or behind turn N; 0 is the beginning"},
    Row{Kind::checkpoints,
        Takes::nothing,
        {"/checkpoints"},
        "/checkpoints",
        "all turns and branches, and what is remembered of each"},
    Row{Kind::save,
        Takes::text,
        {"/save"},
        "/save [NAME]",
        "save the chat; from then on every turn is saved"},
    Row{Kind::load, Takes::text, {"/load"}, "/load NAME", "go on with a saved chat"},
    Row{Kind::sessions, Takes::nothing, {"/sessions"}, "/sessions", "the saved chats"},
    Row{Kind::memory, Takes::nothing, {"/mem"}, "/mem", "what memory is used for"},
    Row{Kind::exit, Takes::nothing, {"/exit", "/quit", "/bye"}, "/exit", "leave, as Ctrl-D does"},
};

/// Insertions, deletions and replacements from one word to the other.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string nearest(std::string_view word) {
  const std::vector<std::string> names = slash_names();
  return *std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return distance(word, a) < distance(word, b);
  });
}

const Row& row_of(std::string_view word) {
  for (const Row& row : rows) {
    const auto& names = row.names;
    if (std::find(names.begin(), names.end(), word) != names.end()) return row;
  }
  constexpr std::size_t shown_max = 40;
  const bool is_long = word.size() > shown_max;
  throw Error(ErrorKind::usage,
              fmt::format("{}{}: no such command{}; /help lists them, and a message that begins "
                          "with a slash is entered with two: //",
                          word.substr(0, shown_max), is_long ? "..." : "",
                          is_long ? "" : fmt::format(", did you mean {}?", nearest(word))));
}

std::int32_t count_of(std::string_view name, std::string_view text) {
  std::int32_t count = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failed == std::errc() && end == text.data() + text.size() && count >= 1) return count;
  throw Error(ErrorKind::usage, fmt::format("{}: '{}' is not a number from 1 on", name, text));
}

}  // namespace

bool is_slash_command(std::string_view text) {
  return text.starts_with('/') && !text.starts_with("//");
}

SlashCommand parse_slash_command(std::string_view text) {
  const std::size_t end = std::min(text.find_first_of(" \t\n"), text.size());
  const std::string_view name = text.substr(0, end);
  const std::string_view argument = trimmed(text.substr(end));
  const Row& row = row_of(name);
  if (row.takes == Takes::nothing && !argument.empty()) {
    throw Error(ErrorKind::usage, fmt::format("{}: takes no argument, got '{}'", name, argument));
  }
  SlashCommand command{.kind = row.kind, .argument = std::string(argument)};
  if (row.takes == Takes::count && !argument.empty()) command.count = count_of(name, argument);
  if (row.takes == Takes::place) {
    const std::size_t number = std::min(argument.find_first_of(" \t\n"), argument.size());
    command.count = argument.empty() ? 0 : count_of(name, argument.substr(0, number));
    command.argument = trimmed(argument.substr(number));
  }
  return command;
}

std::vector<std::string> slash_names() {
  std::vector<std::string> names;
  for (const Row& row : rows) {
    for (const std::string_view name : row.names) {
      if (!name.empty()) names.emplace_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string slash_help() {
  std::string help;
  for (const Row& row : rows) {
    std::string aliases;
    for (const std::string_view name : row.names) {
      if (!name.empty() && name != row.names.front()) aliases += fmt::format(", also {}", name);
    }
    help += fmt::format("  {:<28} {}{}\n", row.usage, row.about, aliases);
  }
  return help +
         "  //TEXT                       a message that begins with a slash\n"
         "  \"\"\"TEXT\"\"\"                   a message of several lines, taken as it stands\n"
         "A line that ends in a backslash goes on in the next; so does one after Ctrl-J or\n"
         "Alt-Enter. Ctrl-C stops an answer or clears the line, Ctrl-D leaves, Ctrl-R searches\n"
         "what was entered before.\n";
}

}  // namespace hyb::app
