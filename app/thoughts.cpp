#include "app/thoughts.h"

#include <algorithm>
#include <utility>

#include "app/white_space.h"

namespace hyb::app {

ThoughtScanner::ThoughtScanner(const AnswerStart& start)
    : place_(!start.may_think        ? Place::answer
             : start.opening.empty() ? Place::begin
                                     : Place::thought) {}

std::vector<ThoughtScanner::Piece> ThoughtScanner::in_thought(std::string_view text) {
  const std::size_t seen = held_.size();
  held_ += text;
  const std::size_t end = held_.find(thought_end);
  if (end == std::string::npos) {
    held_.erase(0, held_.size() - std::min(held_.size(), thought_end.size() - 1));
    return {{std::string(text), true}};
  }
  place_ = Place::answer;
  const std::size_t cut = end + thought_end.size() - seen;
  std::vector<Piece> pieces = {{std::string(text.substr(0, cut)), true}};
  if (cut < text.size()) pieces.push_back({std::string(text.substr(cut)), false});
  return pieces;
}

std::vector<ThoughtScanner::Piece> ThoughtScanner::push(std::string_view text) {
  if (text.empty()) return {};
  if (place_ == Place::thought) return in_thought(text);
  if (place_ == Place::answer) return {{std::string(text), false}};
  held_ += text;
  const std::string_view word = without_front(held_);
  if (word.size() < thought_begin.size() && thought_begin.starts_with(word)) return {};
  place_ = word.starts_with(thought_begin) ? Place::thought : Place::answer;
  return push(std::exchange(held_, {}));
}

std::vector<ThoughtScanner::Piece> ThoughtScanner::finish() {
  if (place_ != Place::begin || held_.empty()) return {};
  return {{std::exchange(held_, {}), false}};
}

SplitAnswer split_answer(std::string_view text, const AnswerStart& start) {
  ThoughtScanner scanner(start);
  std::string thought, rest;
  for (const auto& pieces : {scanner.push(text), scanner.finish()}) {
    for (const ThoughtScanner::Piece& piece : pieces)
      (piece.is_thought ? thought : rest) += piece.text;
  }
  const bool has_begun = start.may_think && !start.opening.empty();
  if (thought.empty() && !has_begun) return {.reasoning = {}, .content = std::move(rest)};
  std::string_view inner = without_front(thought);
  // Some models begin the thought again that their prompt has begun.
  if (inner.starts_with(thought_begin)) inner.remove_prefix(thought_begin.size());
  if (inner.ends_with(thought_end)) inner.remove_suffix(thought_end.size());
  return {.reasoning = std::string(trimmed(inner)), .content = std::string(without_front(rest))};
}

Json assistant_message(std::string_view text, const AnswerStart& start, bool takes_reasoning) {
  Json message = {{"role", "assistant"}, {"content", start.opening + std::string(text)}};
  if (!takes_reasoning) return message;
  SplitAnswer split = split_answer(text, start);
  if (!split.reasoning) return message;
  message["content"] = std::move(split.content);
  message["reasoning_content"] = std::move(*split.reasoning);
  return message;
}

}  // namespace hyb::app
