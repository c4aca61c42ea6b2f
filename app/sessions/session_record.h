#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "app/chat/conversation.h"

namespace hyb::app {

/// A saved chat: what the app's section of a session file holds.
struct SessionRecord {
  std::string model;         ///< as the user named it; for people
  std::int64_t saved_s = 0;  ///< since 1970
  Conversation conversation;
};

/// As JSON: every turn with its texts and ids, the branches, the system prompt.
std::string record_text(const SessionRecord& record);

/// Reads it back. The text is untrusted: whatever breaks the form is Error(model) that begins with
/// `source`. Ids are numbers from 0 on; that the vocabulary has them is for the caller to check.
SessionRecord parse_record(std::string_view text, const std::string& source);

}  // namespace hyb::app
