#include "core/engine/trace_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <ostream>

namespace hyb {
namespace {

template <typename Pieces>
std::string text_of_pieces(const Pieces& pieces) {
  std::string text = "[";
  for (const auto& piece : pieces) {
    fmt::format_to(std::back_inserter(text), "{}[{},{}]", text.size() > 1 ? "," : "", piece.segment,
                   piece.length);
  }
  return text + "]";
}

}  // namespace

void TraceRecorder::submitted(RequestId request, std::int32_t choices,
                              std::span<const TokenId> prompt,
                              std::chrono::steady_clock::time_point now) {
  if (begin_ == std::chrono::steady_clock::time_point{}) begin_ = now;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  Point end;
  const std::vector<Piece> pieces = extend(end, prompt, false);
  const std::string segments = text_of_pieces(pieces);
  for (std::int32_t choice = 0; choice < choices; ++choice) {
    const Turn turn = turn_of(pieces, end);
    lines_.push_back(
        {.request = request,
         .choice = choice,
         .text = fmt::format(R"({{"t":{:.3f},"session":"{}","turn":{},"prompt":{},"output":)",
                             seconds, turn.session, turn.turn, segments),
         .prompt_end = end});
  }
}

void TraceRecorder::ended(RequestId request, std::int32_t choice, std::span<const TokenId> answer) {
  const auto found = std::find_if(lines_.begin(), lines_.end(), [&](const Line& line) {
    return line.request == request && line.choice == choice;
  });
  if (found == lines_.end()) return;
  found->text += text_of_pieces(extend(found->prompt_end, answer, true)) + "}\n";
  found->is_complete = true;
  for (; !lines_.empty() && lines_.front().is_complete; lines_.pop_front()) {
    *out_ << lines_.front().text;
  }
  out_->flush();
}

/// The pieces that stand for these tokens behind `from`, which is moved behind them. An answer
/// begins with a segment of its own: a piece has no offset, so it cannot go on within the prompt's.
std::vector<TraceRecorder::Piece> TraceRecorder::extend(Point& from,
                                                        std::span<const TokenId> tokens,
                                                        bool is_answer) {
  std::vector<Piece> pieces;
  bool may_go_on = !is_answer;
  while (!tokens.empty()) {
    const Segment& segment = segments_[static_cast<std::size_t>(from.segment)];
    const auto rest = std::span(segment.tokens).subspan(static_cast<std::size_t>(from.length));
    const auto differs = std::mismatch(rest.begin(), rest.end(), tokens.begin(), tokens.end());
    const auto common = static_cast<std::int32_t>(differs.first - rest.begin());
    if (may_go_on && common > 0) {
      pieces.push_back({from.segment, from.length + common});
      from.length += common;
      tokens = tokens.subspan(static_cast<std::size_t>(common));
      continue;
    }
    const auto next = static_cast<std::int32_t>(segments_.size());
    const auto [child, is_new] = segments_[static_cast<std::size_t>(from.segment)].children.emplace(
        std::pair(from.length, tokens.front()), next);
    if (is_new) segments_.emplace_back().tokens.assign(tokens.begin(), tokens.end());
    from = {.segment = child->second, .length = 0};
    may_go_on = true;
  }
  return pieces;
}

/// That of the longest earlier prompt that this one goes on from, or the first of a new session.
TraceRecorder::Turn TraceRecorder::turn_of(std::span<const Piece> prompt, Point prompt_end) {
  const Turn* earlier = nullptr;
  for (const Piece& piece : prompt) {
    const auto from = prompt_ends_.lower_bound(Point{piece.segment, 1});
    for (auto at = from; at != prompt_ends_.end(); ++at) {
      const Point point = at->first;
      if (point.segment != piece.segment || point.length > piece.length) break;
      if (point != prompt_end) earlier = &at->second;
    }
  }
  const Turn turn = earlier != nullptr
                        ? Turn{.session = earlier->session, .turn = earlier->turn + 1}
                        : Turn{.session = sessions_++, .turn = 1};
  prompt_ends_.insert_or_assign(prompt_end, turn);
  return turn;
}

}  // namespace hyb
