#include "app/chat/commands.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/base/texts.h"
#include "app/runtime/memory_plan.h"
#include "app/ui/table.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/engine/stop_strings.h"

namespace hyb::app {
namespace {

// Settings beside the parameters of sampling.
constexpr std::string_view length_setting = "max_tokens", stop_setting = "stop",
                           bias_setting = "logit_bias", think_setting = "think";

std::vector<std::string> setting_names() {
  std::vector<std::string> names;
  for (const Parameter& parameter : sampling_parameters) names.emplace_back(parameter.name);
  for (const auto name : {length_setting, stop_setting, bias_setting, think_setting}) {
    names.emplace_back(name);
  }
  return names;
}

enum class ArgKind : std::uint8_t { nothing, text, count, place };

using Kind = SlashCommand::Kind;

struct Row {
  Kind kind;
  ArgKind arg;
  std::string_view usage;    ///< its first word is the name to advertise
  std::string_view aliases;  ///< with a space between two
  std::string_view about;
};

constexpr std::array command_rows = {
    Row{Kind::help, ArgKind::nothing, "/help", "/?", "this list"},
    Row{Kind::clear, ArgKind::nothing, "/clear", "/new",
        "forget the conversation, keep the system prompt"},
    Row{Kind::system, ArgKind::text, "/system [TEXT|none]", "",
        "show, replace or remove the system prompt"},
    Row{Kind::think, ArgKind::text, "/think [on|off|default]", "",
        "whether the model thinks before it answers"},
    Row{Kind::set, ArgKind::text, "/set [NAME [VALUE|default]]", "",
        "show or change how answers are drawn, until this chat is left"},
    Row{Kind::stats, ArgKind::nothing, "/stats", "", "tokens and times of the last answer"},
    Row{Kind::regen, ArgKind::count, "/regen [N]", "",
        "answer the last message again with another seed; N: go N messages back"},
    Row{Kind::undo, ArgKind::count, "/undo [N]", "", "take the last N messages back"},
    Row{Kind::read, ArgKind::text, "/read [FILE]", "",
        "begin the next message with a file's text; without FILE: not any more"},
    Row{Kind::edit, ArgKind::place, "/edit [N [TEXT]]", "",
        "replace message N (the last one) and continue from there"},
    Row{Kind::fork, ArgKind::text, "/fork [NAME]", "",
        "continue in a new branch; this one stays as it is"},
    Row{Kind::go_to, ArgKind::text, "/goto NAME|N", "",
        "continue in another branch, or after turn N; 0 is the beginning"},
    Row{Kind::checkpoints, ArgKind::nothing, "/checkpoints", "",
        "all turns and branches, and what is remembered of each"},
    Row{Kind::save, ArgKind::text, "/save [NAME|FILE.md]", "",
        "save the chat, from then on after every turn; or what was said as Markdown, once"},
    Row{Kind::copy, ArgKind::nothing, "/copy", "",
        "have the terminal copy the last answer to the clipboard"},
    Row{Kind::load, ArgKind::text, "/load NAME", "", "continue a saved chat"},
    Row{Kind::sessions, ArgKind::nothing, "/sessions", "", "the saved chats"},
    Row{Kind::memory, ArgKind::nothing, "/mem", "", "what memory is used for"},
    Row{Kind::exit, ArgKind::nothing, "/exit", "/quit /bye", "leave, as Ctrl-D does"},
};

std::vector<std::string_view> names_of(const Row& row) {
  std::vector<std::string_view> names = words_of(row.aliases);
  names.insert(names.begin(), words_of(row.usage).front());
  return names;
}

const Row& row_of(std::string_view word) {
  for (const Row& row : command_rows) {
    const std::vector<std::string_view> names = names_of(row);
    if (std::find(names.begin(), names.end(), word) != names.end()) return row;
  }
  constexpr std::size_t shown_max = 40;
  const std::vector<std::string> known = slash_names();
  const std::string_view near = nearest_name(word.substr(0, shown_max), known);
  throw Error(ErrorKind::usage,
              fmt::format("{}{}: no such command{}; /help lists them, and a message that begins "
                          "with a slash is entered with two: //",
                          word.substr(0, shown_max), word.size() > shown_max ? "..." : "",
                          near.empty() ? "" : fmt::format(", did you mean {}?", near)));
}

std::int32_t count_of(std::string_view name, std::string_view text) {
  const auto count = parse_number<std::int32_t>(text);
  if (count.value_or(0) >= 1) return *count;
  throw Error(ErrorKind::usage, fmt::format("{}: '{}' is not a number from 1 on", name, text));
}

}  // namespace

bool is_slash_command(std::string_view text) {
  return text.starts_with('/') && !text.starts_with("//");
}

SlashCommand parse_slash_command(std::string_view text) {
  const std::size_t end = std::min(text.find_first_of(" \t\n"), text.size());
  const std::string_view name = text.substr(0, end);
  const std::string_view argument = trim(text.substr(end));
  const Row& row = row_of(name);
  if (row.arg == ArgKind::nothing && !argument.empty()) {
    throw Error(ErrorKind::usage, fmt::format("{}: takes no argument, got '{}'", name, argument));
  }
  SlashCommand command{.kind = row.kind, .argument = std::string(argument)};
  if (row.arg == ArgKind::count && !argument.empty()) command.count = count_of(name, argument);
  if (row.arg == ArgKind::place) {
    const std::size_t number = std::min(argument.find_first_of(" \t\n"), argument.size());
    command.count = argument.empty() ? 0 : count_of(name, argument.substr(0, number));
    command.argument = trim(argument.substr(number));
  }
  return command;
}

std::vector<std::string> slash_names() {
  std::vector<std::string> names;
  for (const Row& row : command_rows) {
    for (const std::string_view name : names_of(row)) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

/// Entries of a folder, folders with a slash after them. Those that begin with a dot are listed
/// where the last part begins with one.
std::vector<std::string> paths_from(const std::string& typed) {
  const std::size_t slash = typed.rfind('/') + 1;  // npos + 1 is 0
  const std::string folder = typed.substr(0, slash);
  const bool wants_hidden = typed.substr(slash).starts_with('.');
  std::vector<std::string> paths;
  std::error_code failed;
  const std::filesystem::path start = folder.empty() ? "." : folder;
  for (std::filesystem::directory_iterator entry(start, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.') != wants_hidden) continue;
    std::error_code ignored;
    paths.push_back(folder + name + (entry->is_directory(ignored) ? "/" : ""));
  }
  return paths;
}

std::vector<std::string> arguments_of(Kind kind, const std::string& typed,
                                      const CompletionNames& names) {
  const std::vector<std::string> switches = {"default", "off", "on"};
  if (kind == Kind::think) return switches;
  if (kind == Kind::system) return {"none"};
  if (kind == Kind::load || kind == Kind::save) return names.sessions;
  if (kind == Kind::go_to) return names.branches;
  if (kind == Kind::read) return paths_from(typed);
  if (kind != Kind::set) return {};
  const std::size_t space = typed.find(' ');
  if (space == std::string::npos) return setting_names();
  const std::string name = typed.substr(0, space + 1);
  if (setting_named(typed.substr(0, space)) != think_setting) return {name + "default"};
  std::vector<std::string> values;
  for (const std::string& value : switches) values.push_back(name + value);
  return values;
}

}  // namespace

std::vector<std::string> complete(std::string_view typed, const CompletionNames& names) {
  std::string before;
  std::vector<std::string> words = slash_names();
  const std::size_t space = typed.find(' ');
  if (space != std::string_view::npos && is_slash_command(typed)) {
    const std::string_view command = typed.substr(0, space);
    const std::size_t begin = std::min(typed.find_first_not_of(' ', space), typed.size());
    if (std::ranges::find(words, command) == words.end()) return {};
    before = typed.substr(0, begin);
    words = arguments_of(row_of(command).kind, std::string(typed.substr(begin)), names);
  }
  std::vector<std::string> choices;
  for (const std::string& word : words) {
    if ((before + word).starts_with(typed)) choices.push_back(before + word);
  }
  std::sort(choices.begin(), choices.end());
  return choices;
}

std::string slash_help() {
  std::string help;
  for (const Row& row : command_rows) {
    std::string aliases;
    for (const std::string_view name : words_of(row.aliases)) {
      aliases += fmt::format(", also {}", name);
    }
    help += fmt::format("  {:<28}  {}{}\n", row.usage, row.about, aliases);
  }
  return help +
         "  //TEXT                        a message that begins with a slash\n"
         "  \"\"\"TEXT\"\"\"                    a message of several lines, taken literally\n"
         "A line that ends in a backslash continues in the next; so does one after Ctrl-J or "
         "Alt-Enter. Tab completes commands and their arguments. Ctrl-C stops an answer or clears "
         "the line, Ctrl-D leaves, Ctrl-R searches what was entered before (Ctrl-G ends that), "
         "Ctrl-X Ctrl-E opens the text in $VISUAL or $EDITOR.\n";
}

namespace {

template <typename T>
T number_of(std::string_view name, std::string_view text) {
  const std::optional<T> number = parse_number<T>(text);
  bool is_good = number.has_value();
  if constexpr (std::is_floating_point_v<T>) is_good = is_good && std::isfinite(*number);
  if (is_good) return *number;
  throw Error(ErrorKind::usage, fmt::format("/set {}: '{}' is not {}", name, text,
                                            std::is_floating_point_v<T> ? "a number"
                                            : std::is_unsigned_v<T>     ? "a whole number from 0 on"
                                                                    : "a whole number in range"));
}

void assign_length(GenerationOptions& options, std::string_view value) {
  options.max_tokens.reset();
  if (value == "default" || value == "-1") return;
  options.max_tokens = number_of<std::int32_t>(length_setting, value);
  if (*options.max_tokens >= 1) return;
  throw Error(ErrorKind::usage,
              fmt::format("max_tokens: must be 1 or more, got {}", *options.max_tokens));
}

/// A text is taken as it is, or as JSON where it is in quotes.
void assign_stop(GenerationOptions& options, std::string_view value) {
  if (value == "default") return options.stop.clear();
  std::string text(value);
  if (value.starts_with('"')) {
    const Json json = Json::parse(value, nullptr, false);
    if (!json.is_string()) {
      throw Error(ErrorKind::usage, fmt::format("/set stop: {} is no text in quotes", value));
    }
    text = json;
  }
  options.stop.push_back(std::move(text));
  static_cast<void>(StopStrings{options.stop});  // throws where one cannot be used
}

void assign(GenerationOptions& options, std::string_view name, std::string_view value) {
  if (name == length_setting) return assign_length(options, value);
  if (name == stop_setting) return assign_stop(options, value);
  if (name == bias_setting) {
    if (value == "default") return options.logit_bias.clear();
    return options.logit_bias.emplace_back(value), void();
  }
  const Parameter* const parameter = find_parameter(name);
  options.parameters.erase(parameter->name);
  if (value == "default") return;
  std::visit(
      [&]<typename T>(T SamplingNumbers::*) {
        options.parameters[parameter->name] = number_of<T>(name, value);
      },
      parameter->member);
}

std::string show(const GenerationOptions& options, const SamplingParams& params,
                 std::string_view name) {
  std::string text;
  if (const Parameter* const parameter = find_parameter(name)) {
    text =
        std::visit([](auto value) { return fmt::format("{}", value); }, parameter->value(params));
  } else if (name == length_setting) {
    text = options.max_tokens ? fmt::format("{}", *options.max_tokens)
                              : "no limit but the conversation's";
  } else if (name == stop_setting) {
    for (const std::string& stop : options.stop) text += (text.empty() ? "" : ", ") + to_text(stop);
  } else {
    text = fmt::format("{}", fmt::join(options.logit_bias, ", "));
  }
  if (text.empty()) text = "none";
  return fmt::format("  {:<20} {}\n", name, text);
}

/// A flag's name as a setting's.
std::string spelled(std::string_view flag) {
  flag.remove_prefix(std::min(flag.find_first_not_of("-,"), flag.size()));
  std::string name(flag);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::pair<std::string_view, std::string_view> name_and_value(std::string_view text) {
  const std::size_t space = text.find_first_of(" \t=");
  if (space == std::string_view::npos) return {text, {}};
  std::string_view value = text.substr(space);
  value.remove_prefix(std::min(value.find_first_not_of(" \t="), value.size()));
  return {text.substr(0, space), value};
}

}  // namespace

std::string_view setting_named(std::string_view spelling) {
  const std::string name = spelled(spelling);
  if (name.empty()) return {};
  for (const Parameter& parameter : sampling_parameters) {
    if (name == parameter.name || name == spelled(parameter.more_flags)) return parameter.name;
  }
  if (name == "n" || name == "n_predict") return length_setting;
  const auto others = {length_setting, stop_setting, bias_setting, think_setting};
  const auto* const found = std::ranges::find(others, name);
  return found == others.end() ? std::string_view() : *found;
}

Settings::Settings(GenerationOptions options, const Json& generation_config, std::int32_t vocab)
    : generation_config_(&generation_config), options_(std::move(options)), vocab_(vocab) {
  check(sampling_of(options_, *generation_config_), vocab_);
}

std::string Settings::set(std::string_view argument) {
  const std::vector<std::string> names = setting_names();
  const auto [spelling, value] = name_and_value(argument);
  const std::string_view name = setting_named(spelling);
  if (name.empty() && !spelling.empty()) {
    std::vector<std::string> known = names;
    for (const Parameter& parameter : sampling_parameters) {
      known.push_back(spelled(parameter.more_flags));
    }
    const std::string_view near = setting_named(nearest_name(spelled(spelling), known));
    throw Error(ErrorKind::usage,
                fmt::format("/set: no '{}'{}; there are {}", spelling,
                            near.empty() ? "" : fmt::format(", did you mean {}?", near),
                            fmt::join(names, ", ")));
  }
  if (!value.empty()) {
    GenerationOptions changed = options_;
    assign(changed, name, value);
    check(sampling_of(changed, *generation_config_), vocab_);
    options_ = std::move(changed);
  }
  const SamplingParams now = sampling_of(options_, *generation_config_);
  std::string text;
  for (const std::string& each : names) {
    if (each != think_setting && (name.empty() || each == name)) text += show(options_, now, each);
  }
  return text;
}

namespace {

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// Why no more was reused, and what the reused part cost.
std::string why(const Usage& usage) {
  std::string text(text_of(usage.reuse_limit));
  if (usage.reused_from == SnapshotSource::host) text += ", from the host's memory";
  if (usage.reused_from == SnapshotSource::disk) text += ", from disk";
  if (usage.reused_from == SnapshotSource::session) text += ", from the session file";
  if (usage.resumed_packed) text += ", from an int8 snapshot";
  return text;
}

/// Returns the tokens of a prompt that matched the cache and could not be reused.
std::int32_t lost_tokens(const Usage& usage) {
  return std::max(usage.matched_tokens - usage.reused_tokens, 0);
}

}  // namespace

double tokens_per_second(const Usage& usage) {
  constexpr std::int32_t enough_tokens = 8;
  constexpr double enough_seconds = 0.1;
  const double time = seconds(usage.decode);
  const std::int32_t after_first = usage.completion_tokens - 1;
  return after_first < enough_tokens || time < enough_seconds ? 0.0 : after_first / time;
}

namespace {

/// "980", "1.2k", "32k".
std::string count_text(std::int64_t count) {
  const double thousands = static_cast<double>(count) / 1024;
  if (count < 1024) return fmt::format("{}", count);
  return thousands < 9.95 && count % 1024 != 0 ? fmt::format("{:.1f}k", thousands)
                                               : fmt::format("{:.0f}k", thousands);
}

}  // namespace

std::string status_line(const Answer& answer, std::int32_t length_max, bool utf8) {
  const Usage& usage = answer.completion.usage;
  const std::string_view dot = utf8 ? " \u00B7 " : ", ";
  std::string line = answer.was_stopped ? fmt::format("stopped{}", dot) : "";
  line += counted(usage.completion_tokens, "token");
  if (const double rate = tokens_per_second(usage); rate > 0) {
    line += fmt::format("{}{:.{}f} tok/s", dot, rate, rate < 9.95 ? 1 : 0);
  }
  const double wait = std::max(seconds(usage.queued + usage.prefill), 0.01);
  return line + fmt::format("{}first after {:.{}f} s{}{} of {}", dot, wait, wait < 0.1 ? 2 : 1, dot,
                            count_text(usage.prompt_tokens + usage.completion_tokens),
                            count_text(length_max));
}

void ChatTotals::add(const Usage& usage) {
  ++answers;
  reused_tokens += usage.reused_tokens;
  prefilled_tokens += usage.prefilled_tokens;
  completion_tokens += usage.completion_tokens;
}

std::string stats_text(const Answer& last, const ChatTotals& totals) {
  const Completion& completion = last.completion;
  const Usage& usage = completion.usage;
  std::string text = fmt::format(
      "last answer\n"
      "  prompt               {} ({} reused, {} prefilled)\n"
      "  known before         {} ({} not reused), {}\n"
      "  generated            {}, ended by {}\n"
      "  time to first token  {:.3f} s\n",
      counted(usage.prompt_tokens, "token"), usage.reused_tokens, usage.prefilled_tokens,
      counted(usage.matched_tokens, "token"), lost_tokens(usage), why(usage),
      counted(usage.completion_tokens, "token"), name_of(completion.reason),
      seconds(usage.queued + usage.prefill));
  if (usage.prefilled_tokens > 0 && usage.prefill.count() > 0) {
    text += fmt::format("  prefill              {:.0f} tok/s\n",
                        usage.prefilled_tokens / seconds(usage.prefill));
  }
  if (const double rate = tokens_per_second(usage); rate > 0) {
    text += fmt::format("  generation           {:.1f} tok/s\n", rate);
  }
  if (last.speculation.verify_steps > 0) {
    text += fmt::format("  speculation          {}\n", drafts_text(last.speculation));
  }
  if (usage.recomputed_tokens > 0) {
    text += fmt::format("  recomputed           {}\n", counted(usage.recomputed_tokens, "token"));
  }
  text += fmt::format("this chat\n  {}: {} reused, {} prefilled, {} generated\n",
                      counted(totals.answers, "answer"), totals.reused_tokens,
                      totals.prefilled_tokens, totals.completion_tokens);
  if (totals.ahead_tokens > 0) {
    text += fmt::format("  {} run while you typed\n", counted(totals.ahead_tokens, "token"));
  }
  return text;
}

namespace {

/// Rows of owner, bytes and a note.
class OwnerTable {
 public:
  void row(std::string_view owner, std::size_t bytes, std::string note = {}) {
    table_.rows.push_back({std::string(owner), bytes_text(bytes), std::move(note)});
  }

  /// The same for what may be absent: a row of nothing is left out.
  void units(std::string_view owner, const UnitUsage& usage, std::string_view unit) {
    if (usage.units > 0) row(owner, usage.bytes, fmt::format("{} {}", usage.units, unit));
  }

  std::string text() const { return plain_text(table_); }

 private:
  Table table_{.columns = columns_of("|>|")};
};

void add_pool(OwnerTable& table, const PoolUsage& pool) {
  for (const UnitUsage& group : pool.pages) {
    table.units(fmt::format("keys and values, {}", group.kind), group, "pages");
  }
  table.units("recurrent state, running", pool.live_slots, "slots");
  table.units("recurrent state, snapshots", pool.snapshot_slots, "slots");
  table.units("int8 snapshots", pool.packed, "units");
  table.units("drafts of recurrent layers", pool.rings, "rings");
  table.row("free among these", pool.idle_bytes + pool.remainder_bytes);
  table.row("free", pool.free_bytes,
            fmt::format("{} of {} superblocks", pool.superblocks_free, pool.superblocks));
  if (pool.superblocks_uncommitted > 0) {
    const auto uncommitted = static_cast<std::size_t>(pool.superblocks_uncommitted);
    const auto free = static_cast<std::size_t>(pool.superblocks_free);
    table.row("of which the device lacks", pool.free_bytes / free * uncommitted,
              counted(uncommitted, "superblock"));
  }
}

std::string tree_text(const EngineUsage& usage) {
  const PrefixCacheStats& tree = usage.prefixes;
  return fmt::format(
      "prefix tree: {}; {} of {} prompts resumed, {} of {} known tokens; {} evicted\n"
      "memory: {} changed owner, {} preempted, {} deferred\n",
      counted(usage.snapshots, "snapshot"), tree.hits, tree.lookups, tree.tokens_resumed,
      tree.tokens_matched, tree.evicted, counted(usage.pool.owner_changes, "superblock"),
      counted(usage.preemptions, "sequence"), usage.deferrals);
}

}  // namespace

std::string tier_text(const SnapshotTier* tier) {
  if (tier == nullptr) return {};
  const TierStats stats = tier->stats();
  std::string text =
      fmt::format("{}: {} written, {} read back, {} in use", tier->name(),
                  counted(stats.spilled, "snapshot"), stats.fetched, bytes_text(stats.bytes_used));
  if (stats.late > 0) text += fmt::format("; {} came too fast to be copied", stats.late);
  if (stats.damaged > 0) {
    text += fmt::format("; {} came back damaged: not used, computed again",
                        counted(stats.damaged, "piece"));
  }
  return text + (tier->is_on() ? "\n" : "; off since an error\n");
}

std::string memory_text(const MemoryPlan& plan, const EngineUsage& usage) {
  OwnerTable table;
  table.row("weights", plan.weights);
  table.row("workspace", plan.workspace);
  if (plan.library > 0) table.row("cuBLASLt", plan.library);
  add_pool(table, usage.pool);
  const bool has_own_card = plan.cards > 1;
  if (plan.memories > 1 || has_own_card) {
    const HandoverStats& handed = usage.handovers;
    table.row("prompts", usage.prompt_pool.total(),
              fmt::format("{}; {} handed over from there, {}",
                          has_own_card ? "on another card, with weights and workspace there"
                                       : "memory of their own",
                          counted(handed.sequences, "sequence"),
                          bytes_text(static_cast<std::size_t>(handed.bytes))));
  }
  const std::size_t given = plan.weights + plan.workspace + plan.library + usage.pool.total() +
                            (has_own_card ? 0 : usage.prompt_pool.total());
  table.row("unused", plan.budget > given ? plan.budget - given : 0);
  table.row("budget", plan.budget, fmt::format("{} tokens a sequence", plan.length_max));
  if (plan.pinned > 0) table.row("pinned", plan.pinned, "of the machine's memory, besides");
  return table.text() + tree_text(usage);
}

}  // namespace hyb::app
