#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "app/bench/request_source.h"
#include "core/replay/trace.h"

namespace hyb::app {

struct TraceOptions {
  Request terms;            ///< what all requests have in common
  std::int32_t vocab = 0;   ///< of the tokens that segments stand for
  bool uses_times = false;  ///< requests come when the trace says; else all are due at once
};

/// The trace with all lengths divided, rounded up: what was shared is shared.
std::vector<ReplayRequest> scaled_trace(std::vector<ReplayRequest> trace, std::int32_t scale_down);

/// A trace asked of a real model. Where a prompt goes on from an answer of the trace it goes on
/// from the tokens that the model gave instead, and waits for them.
class TraceRequests final : public RequestSource {
 public:
  /// The trace outlives this.
  TraceRequests(std::span<const ReplayRequest> trace, TraceOptions options);

  std::size_t size() const override { return trace_.size(); }
  double due_s(std::size_t i) const override;
  std::optional<std::size_t> follows(std::size_t i) const override { return follows_[i]; }
  Request request(std::size_t i) override;
  void answered(std::size_t i, const Completion& completion) override;

 private:
  void append(std::vector<TokenId>& tokens, const Segment& segment) const;

  std::span<const ReplayRequest> trace_;
  TraceOptions options_;
  std::vector<std::optional<std::size_t>> follows_;
  std::map<std::int64_t, std::size_t> answers_to_come_;  ///< segment -> request that makes it
  std::map<std::int64_t, std::vector<TokenId>> given_;   ///< segments that the model made
};

}  // namespace hyb::app
