#pragma once

#include <string>
#include <string_view>

#include "core/base/json.h"
#include "core/engine/request.h"
#include "core/text/answer_scanner.h"
#include "core/text/chat_template.h"

namespace hyb::app {

/// The answer as a past message for a template: {role, content, reasoning_content} where it has a
/// thought and the template `takes_reasoning` by that name; else {role, content} with all of its
/// text, the part that its prompt had begun included, or where the markers say so without its
/// thought. A call of harmony is a member of tool_calls; its thought is left out where it has
/// content too: gpt-oss's template takes one of them.
Json assistant_message(std::string_view text, const AnswerStart& start, bool takes_reasoning);

/// Holds what is known of the thoughts of all past answers.
struct PastThoughts {
  ThoughtMarkers markers = {};
  bool takes_reasoning = false;
};

/// The thought that a prompt has begun and not ended, see AnswerStart.
std::string opening_of(const Rendered& rendered, const ThoughtMarkers& markers = {});

/// Stop strings then end the answer, not the thought before it: unless one of them spells the end
/// of a thought, which means just that.
void set_start(Request& request, const AnswerStart& start);

}  // namespace hyb::app
