#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <iosfwd>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/engine/request.h"
#include "core/io/file.h"
#include "core/memory/prefix/prompts.h"

namespace hyb {

/// A run of fixed tokens: the same id means the same tokens, a shorter segment the first of them.
struct Segment {
  std::int64_t id;
  std::int32_t length;
};

/// One line of a trace: {"t": seconds, "session": id, "turn": k, "prompt": [[segment, length],
/// ...], "output": [[segment, length], ...]}, and in a recorded one's first line "model": name.
struct ReplayRequest {
  double time_s = 0;
  std::string session;
  std::int32_t turn = 0;
  std::vector<Segment> prompt;
  std::vector<Segment> output;
  std::string model = {};               ///< that served it, where its line says so
  std::optional<PromptPlan> plan = {};  ///< where the requests to come are known
};

std::int64_t tokens_of(std::span<const Segment> segments);

/// A request's tokens, prompt first: equal where segments have equal prefixes and nowhere else
/// (except one chance in 2^31 per token).
struct RequestTokens {
  explicit RequestTokens(const ReplayRequest& from);

  std::span<const TokenId> prompt() const {
    return std::span(all).first(static_cast<std::size_t>(prompt_length));
  }
  std::int32_t length() const { return static_cast<std::int32_t>(all.size()); }

  const ReplayRequest* request;
  std::vector<TokenId> all;
  std::int32_t prompt_length;
};

/// Reads a trace line by line with bounded memory. Empty lines are skipped, unknown keys are
/// ignored.
class TraceReader {
 public:
  static constexpr std::size_t line_bytes_max = std::size_t{16} << 20;
  static constexpr std::int64_t request_tokens_max = std::int64_t{1} << 24;

  /// Throws Error(model) when there is no such file.
  explicit TraceReader(const std::filesystem::path& path);

  /// False at the end. Throws Error(model) that names file, line, rule and value.
  bool next(ReplayRequest& request);

 private:
  bool next_line(std::string& line);

  File file_;
  std::uint64_t offset_ = 0;
  std::uint64_t line_number_ = 0;
  double time_s_ = 0;  ///< of the request before
  std::string buffer_;
  std::size_t begin_ = 0;
};

/// All requests of a trace. Throws like TraceReader, and when there is none.
std::vector<ReplayRequest> read_trace(const std::filesystem::path& path);

/// Writes what an engine serves as a trace for `hyb replay`, a line per choice in order of arrival:
/// {"t": seconds, "session": id, "turn": k, "prompt": [[segment, length], ...], "output": ...}. It
/// contains no token and no text: a segment id means tokens that were first seen together, a
/// shorter length the first of them, so two sequences have as many tokens in common as their
/// segments. A prompt that continues an earlier prompt is the next turn of its session.
class TraceRecorder {
 public:
  /// `out` outlives the recorder. Its owner checks for write errors. The first line names the model
  /// unless it is empty.
  explicit TraceRecorder(std::ostream& out, std::string model = {})
      : out_(&out), model_(std::move(model)) {}

  void submitted(RequestId request, std::int32_t choices, std::span<const TokenId> prompt,
                 std::chrono::steady_clock::time_point now);

  /// A choice has ended with this answer. Lines of choices that came before wait for theirs.
  void ended(RequestId request, std::int32_t choice, std::span<const TokenId> answer);

 private:
  struct Segment {
    std::vector<TokenId> tokens;
    std::map<std::pair<std::int32_t, TokenId>, std::int32_t>
        children;  ///< by position and next token
  };
  struct Piece {
    std::int32_t segment, length;
  };
  struct Point {  ///< after `length` tokens of a segment
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
  std::string model_;
  std::vector<Segment> segments_ = std::vector<Segment>(1);  ///< 0: the empty root
  std::map<Point, Turn> prompt_ends_;
  std::deque<Line> lines_;
  std::int64_t sessions_ = 0;
  std::chrono::steady_clock::time_point begin_{};
};

}  // namespace hyb
