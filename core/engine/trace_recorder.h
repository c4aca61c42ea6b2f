#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <iosfwd>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/request.h"

namespace hyb {

/// Writes what an engine serves as a trace for `hyb replay`, a line per choice in order of arrival:
/// {"t": seconds, "session": id, "turn": k, "prompt": [[segment, length], ...], "output": ...}. No
/// token and no text is in it: a segment id stands for tokens that were seen first in one go, a
/// shorter length for the first of them, so two sequences have as many tokens in common as their
/// segments have. A prompt that goes on from an earlier prompt is the next turn of its session.
class TraceRecorder {
 public:
  /// `out` outlives the recorder. Whoever owns it looks for errors of writing.
  explicit TraceRecorder(std::ostream& out) : out_(&out) {}

  void submitted(RequestId request, std::int32_t choices, std::span<const TokenId> prompt,
                 std::chrono::steady_clock::time_point now);

  /// A choice has ended with this answer. Lines of choices that came before wait for theirs.
  void ended(RequestId request, std::int32_t choice, std::span<const TokenId> answer);

 private:
  struct Segment {
    std::vector<TokenId> tokens;
    std::map<std::pair<std::int32_t, TokenId>, std::int32_t> children;  ///< by where and with what
  };
  struct Piece {
    std::int32_t segment, length;
  };
  struct Point {  ///< behind so many tokens of a segment
    std::int32_t segment = 0, length = 0;
    auto operator<=>(const Point&) const = default;
  };
  struct Turn {
    std::int64_t session, turn;
  };
  struct Line {
    RequestId request;
    std::int32_t choice;
    std::string text;  ///< up to the answer; the whole line when it is complete
    Point prompt_end;
    bool is_complete = false;
  };

  std::vector<Piece> extend(Point& from, std::span<const TokenId> tokens, bool is_answer);
  Turn turn_of(std::span<const Piece> prompt, Point prompt_end);

  std::ostream* out_;
  std::vector<Segment> segments_ = std::vector<Segment>(1);  ///< 0: the empty root
  std::map<Point, Turn> prompt_ends_;
  std::deque<Line> lines_;
  std::int64_t sessions_ = 0;
  std::chrono::steady_clock::time_point begin_{};
};

}  // namespace hyb
