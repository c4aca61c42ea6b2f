#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "app/bench/request_source.h"
#include "app/bench/work_item.h"

namespace hyb::app {

/// Requests that are known beforehand, and the answers they got.
class ListedRequests final : public RequestSource {
 public:
  /// `due_s`: when each comes; empty: all at once. The work outlives this.
  explicit ListedRequests(std::span<const WorkItem> work, std::vector<double> due_s = {})
      : work_(work), due_s_(std::move(due_s)), answers_(work.size()) {}

  std::size_t size() const override { return work_.size(); }
  double due_s(std::size_t i) const override { return due_s_.empty() ? 0 : due_s_[i]; }
  Request request(std::size_t i) override { return work_[i].request; }
  void answered(std::size_t i, const Completion& completion) override {
    answers_[i] = completion.tokens;
  }

  /// Empty where there is none.
  const std::vector<std::vector<TokenId>>& answers() const { return answers_; }

 private:
  std::span<const WorkItem> work_;
  std::vector<double> due_s_;
  std::vector<std::vector<TokenId>> answers_;
};

}  // namespace hyb::app
