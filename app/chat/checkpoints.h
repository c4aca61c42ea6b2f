#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "app/chat/conversation.h"

namespace hyb::app {

/// Moves within a conversation, as the slash commands name them. Each returns a line that says
/// where it stands now, and throws Error(usage) when there is no such place.

/// Where it stands, as the others say it.
std::string place_text(const Conversation& conversation);

/// Takes the last `count` turns back; at least one must be there.
std::string undo(Conversation& conversation, std::int32_t count);

/// Starts a branch; without a name, "fork-1" or the next number that is free. Names are not
/// numbers, for /goto.
std::string fork(Conversation& conversation, const std::string& name);

/// `place`: the name of a branch or the number of a turn.
std::string go_to(Conversation& conversation, const std::string& place);

/// The tokens of a turn that would not have to be run again to go on behind it.
using Resumable = std::function<std::int32_t(std::int32_t turn)>;

/// A table of all turns in the order in which they were given: number, the turn before, tokens and
/// how many of them are kept (left out without `resumable`), branches that end there, message.
std::string checkpoints_text(const Conversation& conversation, const Resumable& resumable);

}  // namespace hyb::app
