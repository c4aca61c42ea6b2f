#include "app/bench/trace_requests.h"

#include <algorithm>
#include <set>
#include <utility>

namespace hyb::app {
namespace {

/// The same segment and place: the same token (the finaliser of splitmix64).
TokenId token_at(std::int64_t segment, std::int32_t place, std::int32_t vocab) {
  std::uint64_t bits =
      static_cast<std::uint64_t>(segment) * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(place);
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  bits ^= bits >> 31;
  return TokenId{static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(vocab))};
}

}  // namespace

std::vector<ReplayRequest> scaled_trace(std::vector<ReplayRequest> trace, std::int32_t scale_down) {
  for (ReplayRequest& request : trace) {
    for (auto* const segments : {&request.prompt, &request.output}) {
      for (Segment& segment : *segments) {
        segment.length = (segment.length + scale_down - 1) / scale_down;
      }
    }
  }
  return trace;
}

TraceRequests::TraceRequests(std::span<const ReplayRequest> trace, TraceOptions options)
    : trace_(trace), options_(std::move(options)), follows_(trace.size()) {
  std::set<std::int64_t> seen;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    for (const Segment& segment : trace[i].prompt) {
      const auto maker = answers_to_come_.find(segment.id);
      if (maker != answers_to_come_.end()) {
        follows_[i] = std::max(follows_[i].value_or(0), maker->second);
      }
      seen.insert(segment.id);
    }
    // What stood in an earlier prompt is the same tokens there: it stays what it was.
    for (const Segment& segment : trace[i].output) {
      if (seen.insert(segment.id).second) answers_to_come_.emplace(segment.id, i);
    }
  }
}

double TraceRequests::due_s(std::size_t i) const {
  return options_.uses_times ? trace_[i].time_s - trace_.front().time_s : 0;
}

void TraceRequests::append(std::vector<TokenId>& tokens, const Segment& segment) const {
  const auto given = given_.find(segment.id);
  const std::int32_t length = segment.length;
  for (std::int32_t place = 0; place < length; ++place) {
    const bool is_given = given != given_.end() && place < std::ssize(given->second);
    tokens.push_back(is_given ? given->second[static_cast<std::size_t>(place)]
                              : token_at(segment.id, place, options_.vocab));
  }
}

Request TraceRequests::request(std::size_t i) {
  Request request = options_.terms;
  for (const Segment& segment : trace_[i].prompt) append(request.prompt, segment);
  request.max_tokens = 0;
  for (const Segment& segment : trace_[i].output) request.max_tokens += segment.length;
  request.max_tokens = std::max(request.max_tokens, 1);
  return request;
}

void TraceRequests::answered(std::size_t i, const Completion& completion) {
  auto next = completion.tokens.begin();
  for (const Segment& segment : trace_[i].output) {
    const auto left = completion.tokens.end() - next;
    const auto end = next + std::min<std::ptrdiff_t>(segment.length, left);
    const auto maker = answers_to_come_.find(segment.id);
    if (maker != answers_to_come_.end() && maker->second == i) {
      given_.try_emplace(segment.id, next, end);
    }
    next = end;
  }
}

}  // namespace hyb::app
