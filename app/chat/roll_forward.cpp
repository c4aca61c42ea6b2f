#include "app/chat/roll_forward.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "core/base/error.h"

namespace hyb::app {
namespace {

/// An entry that is finished meanwhile waits for so long at most: less than what is felt.
constexpr std::chrono::milliseconds piece_time{40};
constexpr std::int32_t chunk_tokens_min = 4, chunk_tokens_max = 512;

}  // namespace

RollForward::~RollForward() {
  try {
    end();
  } catch (...) {
    // Whoever destroys this has nothing to do with what the engine could not do.
  }
}

void RollForward::begin(std::function<std::vector<TokenId>()> tokens) {
  end();
  asked_ = std::move(tokens);
}

bool RollForward::work() {
  try {
    if (asked_) {
      submit();
      return running_.has_value();
    }
    if (!running_) return false;
    engine_.step();
    return running_.has_value();
  } catch (const Error&) {
    // The prompt itself will meet the same error, and its asker hears of it.
  } catch (const std::bad_alloc&) {
  }
  end();
  return false;
}

void RollForward::submit() {
  Request request;
  request.prompt = std::exchange(asked_, nullptr)();
  request.prefill_only = true;
  request.chunk_tokens = chunk_tokens_;
  const auto tokens = static_cast<std::int64_t>(request.prompt.size());
  if (tokens == 0 || tokens >= engine_.length_max()) return;
  running_ = engine_.submit(std::move(request), *this);
}

void RollForward::end() {
  asked_ = nullptr;
  if (running_) engine_.cancel(*running_);
  running_.reset();
}

void RollForward::on_finish(RequestId, std::int32_t, const Completion& completion) {
  running_.reset();
  tokens_ += completion.usage.prefilled_tokens;
}

void RollForward::learn(const Usage& usage) {
  const double seconds = std::chrono::duration<double>(usage.prefill).count();
  constexpr std::int32_t enough = 16;  // fewer tell the cost of a step rather than a rate
  if (usage.prefilled_tokens < enough || seconds <= 0) return;
  const double rate = usage.prefilled_tokens / seconds;
  const double piece = rate * std::chrono::duration<double>(piece_time).count();
  chunk_tokens_ =
      static_cast<std::int32_t>(std::clamp<double>(piece, chunk_tokens_min, chunk_tokens_max));
}

}  // namespace hyb::app
