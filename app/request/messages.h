#pragma once

#include <string>

#include "core/base/json.h"

namespace hyb::app {

/// Throws Error(usage), which begins with `place`, unless these are messages: at least one, each an
/// object with a role in text and with a content, which an answer that calls tools may lack.
void check_messages(const Json& messages, const std::string& place = {});

/// The body of a request in a JSON file ("-": stdin): an object with `messages` and whatever else
/// it says but `stream`, as stdout is one; an array is the messages alone. Throws Error(usage)
/// where there are no messages and as check_messages(), and Error(model) for what is no JSON.
Json read_messages(const std::string& file);

/// {"messages": ...}: a question, and a system prompt unless it is empty. Throws as check_utf8().
Json question_body(const std::string& system, const std::string& text);

}  // namespace hyb::app
