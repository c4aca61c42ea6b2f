#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/request/answer.h"
#include "app/request/sampling_options.h"
#include "app/runtime/memory_plan.h"
#include "core/base/json.h"
#include "core/engine/engine.h"
#include "core/memory/prefix/prefix_tree.h"
#include "core/memory/tier/snapshot_tier.h"

namespace hyb::app {

/// A line that begins with a slash.
struct SlashCommand {
  enum class Kind : std::uint8_t {
    help,
    clear,
    system,
    think,
    set,
    stats,
    memory,
    regen,
    undo,
    edit,
    fork,
    go_to,
    checkpoints,
    save,
    copy,
    load,
    sessions,
    read,
    exit
  };
  Kind kind;
  /// The rest of the line, without white space around it; of edit, what follows the number.
  std::string argument = {};
  std::int32_t count = 1;  ///< of regen and undo; of edit the message's number, 0: the last one
};

/// True if the text is a command: it begins with one slash. A text for the model that begins with a
/// slash is entered with two.
bool is_slash_command(std::string_view text);

/// Throws Error(usage): an unknown command (names the nearest), an argument too many or not a
/// number.
SlashCommand parse_slash_command(std::string_view text);

/// Every name and alias, with the slash, sorted.
std::vector<std::string> slash_names();

/// Names that complete() needs.
struct CompletionNames {
  std::vector<std::string> sessions, branches;
};

/// Returns the completions of a line typed so far: commands, and arguments of those that take a few
/// words, names or paths. Each begins with `typed`.
std::vector<std::string> complete(std::string_view typed, const CompletionNames& names);

std::string slash_help();

/// Generation options of a chat by name, over the model's own defaults, as /set changes them.
class Settings {
 public:
  /// `generation_config` and the vocabulary's size are the model's.
  Settings(GenerationOptions options, const Json& generation_config, std::int32_t vocab);

  const GenerationOptions& options() const { return options_; }

  /// "NAME VALUE" changes, "NAME" and "" show; "default" as the value takes a change back; stop and
  /// logit_bias add one. Names are also spelled as flags are. Returns what to show. Throws
  /// Error(usage): unknown name, not a number, out of range; nothing changes then.
  std::string set(std::string_view argument);

 private:
  const Json* generation_config_;
  GenerationOptions options_;
  std::int32_t vocab_;
};

/// The setting that is spelled so, or as one of its flags; empty: there is none. "think" is one.
std::string_view setting_named(std::string_view spelling);

/// One line about an answer: "34 tokens · 41 tok/s · first after 0.3 s · 1.2k of 32k", without a
/// line break; in plain ASCII unless `utf8`. k is 1024 tokens; length_max are in the last place.
std::string status_line(const Answer& answer, std::int32_t length_max, bool utf8);

/// Generated tokens per second, without the first; 0 where they are too few to say.
double tokens_per_second(const Usage& usage);

/// Sums over a chat.
struct ChatTotals {
  std::int32_t answers = 0;
  std::int64_t reused_tokens = 0, prefilled_tokens = 0, completion_tokens = 0;
  std::int64_t ahead_tokens = 0;  ///< run while a person typed

  void add(const Usage& usage);
};

/// Returns the text of /stats: the last answer and all of them.
std::string stats_text(const Answer& last, const ChatTotals& totals);

/// Text of /mem: every byte of the budget by owner, and how the prefix tree used its share.
std::string memory_text(const MemoryPlan& plan, const EngineUsage& usage);

/// A line of /mem about the tier, damage included; empty where `tier` is null.
std::string tier_text(const SnapshotTier* tier);

}  // namespace hyb::app
