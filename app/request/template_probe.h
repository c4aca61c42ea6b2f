#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "app/model/model_source.h"
#include "core/base/json.h"
#include "core/memory/prefix/snapshot_policy.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

/// Finds out whether the prompt of the next turn begins with this turn's prompt and its answer as
/// given, thinking included, by rendering a conversation of three turns. Unknown where the template
/// refuses that, and where it keeps only the last answer as it was.
PlacementPrior placement_prior(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

/// Default of a template about thoughts.
enum class Thinking : std::uint8_t {
  none,   ///< it begins none, and no variable changes that
  on,     ///< as with enable_thinking, or undecided in a way of its own
  off,    ///< as with enable_thinking false
  always  ///< it begins a thought, and no variable changes that
};

/// "none", "on", "off", "always".
std::string_view name_of(Thinking thinking);

/// Effects of a template's variables, found by rendering short conversations, so that only what
/// changes a prompt counts.
struct TemplateTraits {
  Thinking thinking = Thinking::none;
  bool obeys_think = false;      ///< enable_thinking or thinking make a difference
  bool takes_reasoning = false;  ///< reads reasoning_content of past answers
  bool takes_tools = false;      ///< shows tools to the model
};

TemplateTraits template_traits(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

/// TemplateTraits::takes_reasoning alone.
bool takes_reasoning(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

/// True if a model is to think before it answers; nullopt leaves it to the chat template.
using Think = std::optional<bool>;

/// "on", "off" or "default".
std::string_view name_of(Think think);

/// Returns the value that name_of() names so; nullopt for another word.
std::optional<Think> parse_think(std::string_view word);

/// Returns the template's variables: enable_thinking and thinking, the two names in use.
Json think_variables(Think think);

/// Throws Error(usage) that begins with `flag` where the template makes the same prompt of either,
/// so that asking for one would change nothing.
void check_think(Think think, const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                 std::string_view flag);

/// Throws Error(usage) where a body from `file` sets a variable of --think, too.
void check_think_alone(Think think, const Json& body, const std::string& file);

/// --think, of a model whose weights were not read yet.
void check_think(Think think, const ModelSource& source);

}  // namespace hyb::app
