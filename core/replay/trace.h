#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/io/file.h"
#include "core/memory/prompt_plan.h"

namespace hyb {

/// So many fixed tokens: the same id stands for the same tokens, a shorter segment for the first of
/// them.
struct Segment {
  std::int64_t id;
  std::int32_t length;
};

/// One line of a trace: {"t": seconds, "session": id, "turn": k, "prompt": [[segment, length],
/// ...], "output": [[segment, length], ...]}.
struct ReplayRequest {
  double time_s = 0;
  std::string session;
  std::int32_t turn = 0;
  std::vector<Segment> prompt;
  std::vector<Segment> output;
  std::optional<PromptPlan> plan = {};  ///< where the requests to come are known
};

std::int64_t tokens_of(std::span<const Segment> segments);

/// A request's tokens, prompt first: what equal prefixes of segments make equal and nothing else
/// does (but for one chance in 2^31 per token).
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

}  // namespace hyb
