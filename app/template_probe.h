#pragma once

#include "core/memory/placement.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

/// Whether the prompt of the next turn begins with this turn's prompt and its answer as it was
/// given, thinking included: told by rendering a conversation of three turns. Unknown where the
/// template refuses it, and where it keeps the last answer only as it was.
PlacementPrior placement_prior(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

}  // namespace hyb::app
