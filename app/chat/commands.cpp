#include "app/chat/commands.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "app/options.h"
#include "app/ui/table.h"
#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

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
        "show or change how answers are drawn"},
    Row{Kind::stats, ArgKind::nothing, "/stats", "", "tokens and times of the last answer"},
    Row{Kind::regen, ArgKind::count, "/regen [N]", "",
        "answer the last message again with another seed; N: go N messages back"},
    Row{Kind::undo, ArgKind::count, "/undo [N]", "", "take the last N messages back"},
    Row{Kind::edit, ArgKind::place, "/edit [N [TEXT]]", "",
        "replace message N (the last one) and continue from there"},
    Row{Kind::fork, ArgKind::text, "/fork [NAME]", "",
        "continue in a new branch; this one stays as it is"},
    Row{Kind::go_to, ArgKind::text, "/goto NAME|N", "",
        "continue in another branch, or after turn N; 0 is the beginning"},
    Row{Kind::checkpoints, ArgKind::nothing, "/checkpoints", "",
        "all turns and branches, and what is remembered of each"},
    Row{Kind::save, ArgKind::text, "/save [NAME]", "",
        "save the chat; from then on every turn is saved"},
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

std::string nearest(std::string_view word) {
  const std::vector<std::string> names = slash_names();
  return *std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return edit_distance(word, a) < edit_distance(word, b);
  });
}

const Row& row_of(std::string_view word) {
  for (const Row& row : command_rows) {
    const std::vector<std::string_view> names = names_of(row);
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
    throw Error(ErrorKind::usage, fmt::format("{}: arg no argument, got '{}'", name, argument));
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

std::string slash_help() {
  std::string help;
  for (const Row& row : command_rows) {
    std::string aliases;
    for (const std::string_view name : words_of(row.aliases)) {
      aliases += fmt::format(", also {}", name);
    }
    help += fmt::format("  {:<28} {}{}\n", row.usage, row.about, aliases);
  }
  return help +
         "  //TEXT                       a message that begins with a slash\n"
         "  \"\"\"TEXT\"\"\"                   a message of several lines, taken literally\n"
         "A line that ends in a backslash continues in the next; so does one after Ctrl-J or\n"
         "Alt-Enter. Ctrl-C stops an answer or clears the line, Ctrl-D leaves, Ctrl-R searches\n"
         "what was entered before.\n";
}

namespace {

/// max_tokens is the one setting that is no sampling parameter.
constexpr std::string_view length_setting = "max_tokens";

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
  if (value == "default") return;
  options.max_tokens = number_of<std::int32_t>(length_setting, value);
  if (*options.max_tokens >= 1) return;
  throw Error(ErrorKind::usage,
              fmt::format("max_tokens: must be 1 or more, got {}", *options.max_tokens));
}

void assign(GenerationOptions& options, std::string_view name, std::string_view value) {
  const Parameter* const parameter = find_parameter(name);
  if (parameter == nullptr) return assign_length(options, value);
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
  std::string text = "no limit but the conversation's";
  if (const Parameter* const parameter = find_parameter(name)) {
    text =
        std::visit([](auto value) { return fmt::format("{}", value); }, parameter->value(params));
  } else if (options.max_tokens) {
    text = fmt::format("{}", *options.max_tokens);
  }
  return fmt::format("  {:<20} {}\n", name, text);
}

std::vector<std::string_view> setting_names() {
  std::vector<std::string_view> names;
  for (const Parameter& parameter : sampling_parameters) names.push_back(parameter.name);
  names.push_back(length_setting);
  return names;
}

std::pair<std::string_view, std::string_view> split(std::string_view text) {
  const std::size_t space = text.find_first_of(" \t=");
  if (space == std::string_view::npos) return {text, {}};
  std::string_view value = text.substr(space);
  value.remove_prefix(std::min(value.find_first_not_of(" \t="), value.size()));
  return {text.substr(0, space), value};
}

}  // namespace

Settings::Settings(GenerationOptions options, const Json& generation_config, std::int32_t vocab)
    : generation_config_(&generation_config), options_(std::move(options)), vocab_(vocab) {
  check(sampling_of(options_, *generation_config_), vocab_);
}

std::string Settings::set(std::string_view argument) {
  const std::vector<std::string_view> names = setting_names();
  const auto [name, value] = split(argument);
  if (!name.empty() && std::ranges::find(names, name) == names.end()) {
    throw Error(ErrorKind::usage,
                fmt::format("/set: no '{}'; there are {}", name, fmt::join(names, ", ")));
  }
  if (!value.empty()) {
    GenerationOptions changed = options_;
    assign(changed, name, value);
    check(sampling_of(changed, *generation_config_), vocab_);
    options_ = std::move(changed);
  }
  const SamplingParams now = sampling_of(options_, *generation_config_);
  std::string text;
  for (const std::string_view each : names) {
    if (name.empty() || each == name) text += show(options_, now, each);
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

/// What was known of a prompt and could not be used.
std::int32_t lost_tokens(const Usage& usage) {
  return std::max(usage.matched_tokens - usage.reused_tokens, 0);
}

}  // namespace

double tokens_per_second(const Usage& usage) {
  const double time = seconds(usage.decode);
  return usage.completion_tokens < 2 || time <= 0 ? 0.0 : (usage.completion_tokens - 1) / time;
}

std::string status_line(const Answer& answer, bool utf8) {
  const Usage& usage = answer.completion.usage;
  const std::string_view dot = utf8 ? " \u00B7 " : ", ";
  std::string line = answer.was_stopped ? fmt::format("[stopped{}", dot) : "[";
  line +=
      fmt::format("reused {}{}prefilled {}{}{}{}", usage.reused_tokens, dot, usage.prefilled_tokens,
                  usage.reuse_limit == ReuseLimit::off ? "" : fmt::format(" ({})", why(usage)), dot,
                  counted(usage.completion_tokens, "token"));
  if (const double rate = tokens_per_second(usage); rate > 0) {
    line += fmt::format("{}{:.1f} tok/s", dot, rate);
  }
  return line += ']';
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
  Table table_{.columns = {{""}, {"", Align::right}, {""}}, .rows = {}};
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
