#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "app/bench/load_driver.h"
#include "app/bench/workload.h"
#include "core/engine/runner.h"

namespace hyb::testing {

/// A clock that advances only on command.
class FakeTimer final : public app::Timer {
 public:
  TimePoint now() override { return now_; }
  void wait_until(TimePoint time) override { now_ = std::max(now_, time); }
  void advance(std::chrono::nanoseconds time) { now_ += time; }

 private:
  TimePoint now_ = TimePoint(std::chrono::hours(1));
};

/// A Runner whose steps take 10 ms and 1 ms per token, by a fake clock. It draws token 7.
class ClockRunner final : public Runner {
 public:
  explicit ClockRunner(FakeTimer& timer) : timer_(&timer) {}

  static MemoryLayout flat() { return flat_layout({.pages = 400, .slots = 40, .page_tokens = 4}); }
  Capacity capacity() const override {
    return {.memory = memory, .step_tokens = 64, .sequences_max = 8, .vocab = 16};
  }
  StepResult run(const Step& step) override {
    ++steps;
    StepResult result;
    for (const Span& span : step.spans) {
      timer_->advance(std::chrono::milliseconds(span.tokens.size()));
      for (std::size_t i = 0; i < span.samples.size(); ++i) {
        result.sampled.push_back({.token = TokenId{7}, .finite = is_finite, .top = {}});
      }
    }
    timer_->advance(std::chrono::milliseconds(10));
    return result;
  }
  void read(ViewId, std::int32_t, std::span<std::byte>) override {}
  void write(ViewId, std::int32_t, std::span<const std::byte>) override {}

  MemoryLayout memory = flat();
  bool is_finite = true;
  std::int64_t steps = 0;

 private:
  FakeTimer* timer_;
};

/// Prompts and answers of given numbers of equal tokens.
class ListSource final : public app::RequestSource {
 public:
  struct Item {
    std::int32_t prompt, answer;
    double due_s = 0;
    std::optional<std::size_t> follows = {};
  };
  explicit ListSource(std::vector<Item> items) : items_(std::move(items)) {}

  std::size_t size() const override { return items_.size(); }
  double due_s(std::size_t i) const override { return items_[i].due_s; }
  std::optional<std::size_t> follows(std::size_t i) const override { return items_[i].follows; }
  Request request(std::size_t i) override {
    Request request;
    request.prompt.assign(static_cast<std::size_t>(items_[i].prompt),
                          TokenId{static_cast<std::int32_t>(i) % 16});
    request.max_tokens = items_[i].answer;
    return request;
  }
  void answered(std::size_t i, const Completion&) override { answers.push_back(i); }

  std::vector<std::size_t> answers;  ///< in the order in which they came

 private:
  std::vector<Item> items_;
};

}  // namespace hyb::testing
