#pragma once

#include <string>

#include "app/sessions/session_folder.h"
#include "core/base/json.h"

namespace hyb::app {

/// A table of all sessions: name, turns, tokens of the last answer's prompt and answer, bytes of
/// the file, when it was saved, with which model; of a damaged one, why it can't be read.
std::string session_list_text(const SessionFolder& folder);

/// The same as an array of objects.
Json session_list_json(const SessionFolder& folder);

/// What was said on the session's branch: "user: ..." and "assistant: ..." paragraphs.
std::string transcript(const Conversation& conversation);

}  // namespace hyb::app
