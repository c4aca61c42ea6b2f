#pragma once

#include <cstdint>
#include <string_view>

#include "core/memory/placement.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

/// Whether the prompt of the next turn begins with this turn's prompt and its answer as it was
/// given, thinking included: told by rendering a conversation of three turns. Unknown where the
/// template refuses it, and where it keeps the last answer only as it was.
PlacementPrior placement_prior(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

/// What a template does about thoughts when nobody says anything of them.
enum class Thinking : std::uint8_t {
  none,   ///< it begins none, and can't be told to
  on,     ///< as when told to think, or undecided in a way of its own
  off,    ///< as when told not to
  always  ///< it begins a thought, and no variable changes that
};

/// "none", "on", "off", "always".
std::string_view name_of(Thinking thinking);

/// What a template does with what it is given: told by rendering short conversations, so that only
/// what changes a prompt counts.
struct TemplateTraits {
  Thinking thinking = Thinking::none;
  bool obeys_think = false;      ///< enable_thinking or thinking make a difference
  bool takes_reasoning = false;  ///< reads reasoning_content of past answers
  bool takes_tools = false;      ///< shows tools to the model
};

TemplateTraits template_traits(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

/// TemplateTraits::takes_reasoning alone.
bool takes_reasoning(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

}  // namespace hyb::app
