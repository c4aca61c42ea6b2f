#include "app/request/thoughts.h"

#include <algorithm>
#include <utility>

#include "core/text/tool_calls.h"

namespace hyb::app {
namespace {

/// A member of tool_calls. The arguments stay what the model wrote.
Json tool_call_of(std::string_view message) {
  const ToolCall call = harmony_call(message);
  return {{"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

}  // namespace

Json assistant_message(std::string_view text, const AnswerStart& start, bool takes_reasoning) {
  Json message = {{"role", "assistant"}, {"content", start.opening + std::string(text)}};
  if (!takes_reasoning && start.markers.is_in_content) return message;
  SplitAnswer split = split_answer(text, start);
  if (!split.reasoning && start.markers.is_in_content) return message;
  const bool has_call = !split.call.empty();
  if (has_call) message["tool_calls"] = Json::array({tool_call_of(split.call)});
  if (takes_reasoning && split.reasoning && !(has_call && !split.content.empty())) {
    message["reasoning_content"] = std::move(*split.reasoning);
  }
  message["content"] = std::move(split.content);
  return message;
}

std::string opening_of(const Rendered& rendered, const ThoughtMarkers& markers) {
  std::string behind;
  for (std::size_t i = rendered.pieces.size(); i-- > 0;) {
    const RenderedPiece& piece = rendered.pieces[i];
    const bool is_last = i + 1 == rendered.pieces.size();
    // A person's text begins no thought, and a past answer has ended with its turn.
    if (piece.source == TextSource::person) break;
    if (piece.source == TextSource::assistant && !is_last) break;
    const std::size_t begin = piece.text.rfind(markers.begin), end = piece.text.rfind(markers.end);
    const bool has_begin = begin != std::string::npos, has_end = end != std::string::npos;
    if (has_end && (!has_begin || end >= begin)) break;
    if (has_begin) return piece.text.substr(begin) + behind;
    behind.insert(0, piece.text);
  }
  return {};
}

void set_start(Request& request, const AnswerStart& start) {
  const auto spells_end = [&](const std::string& stop) {
    return stop.find(start.markers.end) != std::string::npos;
  };
  const bool ends_a_thought = !start.markers.has_headers;  // with headers it ends every message
  if (ends_a_thought && std::ranges::any_of(request.stop, spells_end)) return;
  request.start = start;
  request.start.calls = {};  // stop strings count in calls as in other text
}

}  // namespace hyb::app
