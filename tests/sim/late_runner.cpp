#include "tests/sim/late_runner.h"

#include <algorithm>
#include <utility>

#include "tests/sim/toy_runner.h"

namespace hyb::sim {

const char* name_of(LateBug bug) {
  static const char* const names[] = {"none",      "delivered twice", "token lost",
                                      "overtaken", "rows exchanged",  "runs unasked",
                                      "step lost", "extra token kept"};
  return names[static_cast<int>(bug)];
}

LateRunner::Kept::Kept(const Step& from) : step(from) {
  for (Span& span : step.spans) {
    span.tokens = tokens.emplace_back(span.tokens.begin(), span.tokens.end());
    span.tables = tables.emplace_back(span.tables.begin(), span.tables.end());
    for (SampleRow& row : span.samples) {
      row.params = &params.emplace_back(*row.params);
      row.history = tokens.emplace_back(row.history.begin(), row.history.end());
    }
  }
}

/// The one token of a span that was prepared without it.
void LateRunner::Kept::give(std::size_t row, TokenId token) {
  Span& span = step.spans.at(row);
  span.tokens = tokens.emplace_back(1, token);
  std::vector<TokenId>& history =
      tokens.emplace_back(span.samples[0].history.begin(), span.samples[0].history.end());
  history.push_back(token);
  span.samples[0].history = history;
}

StepResult LateRunner::run(const Step& step) {
  launch(step);
  return wait();
}

void LateRunner::begin(UnderWay step) {
  under_way_.push_back(std::move(step));
  if (!random_.chance(30)) return;
  do_steps(under_way_.size());
  const std::exception_ptr failure = under_way_.back().failure;
  if (failure == nullptr || random_.chance(50)) return;
  under_way_.pop_back();  // it is known to have failed before the call returns
  std::rethrow_exception(failure);
}

/// The oldest `count` steps, as far as that was not done yet.
void LateRunner::do_steps(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (!under_way_[i].is_done) do_step(under_way_[i]);
  }
}

/// After a failure the tokens for the next step are missing.
void LateRunner::do_step(UnderWay& step) {
  step.is_done = true;
  try {
    if (step.awaits_tokens) {
      if (has_failed_) throw StepFailure();
      give_tokens(step.step);
    }
    drawn_before_ = std::exchange(drawn_, {});
    step.result = drawn_ = runner_->run(step.step.step);
    has_failed_ = false;
  } catch (const Violation&) {
    violation_ = step.failure = std::current_exception();
  } catch (...) {
    has_failed_ = true;
    step.failure = std::current_exception();
  }
}

void LateRunner::give_tokens(Kept& step) {
  const std::size_t rows = step.step.spans.size();
  const StepResult& drawn = bug_ == LateBug::token_lost ? drawn_before_ : drawn_;
  for (std::size_t i = 0; i < rows; ++i) {
    const std::size_t from = bug_ == LateBug::rows_exchanged ? rows - 1 - i : i;
    if (from < drawn.sampled.size()) step.give(i, drawn.sampled[from].token);
  }
}

void LateRunner::launch(const Step& step) {
  check();
  if (!under_way_.empty()) throw Violation("only a prepared step follows one that runs");
  next_.reset();
  begin({.step = Kept(step), .awaits_tokens = false});
}

void LateRunner::prepare(const Step& next) {
  check();
  if (under_way_.size() != 1) throw Violation("a step is prepared while another one runs");
  const std::vector<Span>& now = under_way_.front().step.step.spans;
  bool follows = next.orders.empty() && next.spans.size() == now.size();
  for (std::size_t i = 0; follows && i < now.size(); ++i) {
    const auto tokens = static_cast<std::int32_t>(now[i].tokens.size());
    follows = now[i].samples.size() == 1 && now[i].samples[0].token == tokens - 1 &&
              next.spans[i].samples.size() == 1 && next.spans[i].samples[0].token == 0 &&
              next.spans[i].tokens.size() == 1 &&
              next.spans[i].position == now[i].position + tokens &&
              next.spans[i].samples[0].draw == now[i].samples[0].draw + 1 &&
              !has_penalties(*next.spans[i].samples[0].params);
  }
  if (!follows) throw Violation("what is prepared follows the step under way");
  if (random_.chance(2)) {
    ++refused;
    throw StepFailure();
  }
  next_.emplace(next);
  ++prepared;
  if (random_.chance(30)) do_steps(1);
}

void LateRunner::launch_prepared() {
  check();
  if (!next_) throw Violation("only what was prepared is begun");
  if (under_way_.size() > 1) throw Violation("two steps are under way at most");
  UnderWay step = {.step = *std::exchange(next_, std::nullopt), .awaits_tokens = true};
  ++begun_early;
  if (!under_way_.empty()) ++overlapping;
  if (is_beside()) ++beside;
  if (bug_ == LateBug::step_lost && begun_early % 3 == 0) {
    step.is_done = true;
    step.result = delivered_;
    under_way_.push_back(std::move(step));
    return;
  }
  if (bug_ == LateBug::overtaken && !under_way_.empty() && !under_way_.front().is_done) {
    do_step(step);
  }
  begin(std::move(step));
}

StepResult LateRunner::wait() {
  if (under_way_.empty()) throw Violation("only what is under way is waited for");
  do_steps(1);
  const UnderWay step = std::move(under_way_.front());
  under_way_.pop_front();
  if (step.failure) std::rethrow_exception(step.failure);
  if (bug_ == LateBug::runs_unasked && next_) {
    Kept unasked = *next_;
    for (std::size_t i = 0; i < unasked.step.spans.size(); ++i) {
      unasked.give(i, step.result.sampled[i].token);
    }
    runner_->run(unasked.step);
  }
  const bool twice = bug_ == LateBug::delivered_twice && begun_early % 4 == 3 &&
                     delivered_.sampled.size() == step.result.sampled.size();
  if (!twice) delivered_ = step.result;
  return delivered_;
}

std::vector<std::vector<SampledToken>> LateRunner::draft(const Step& step) {
  if (!under_way_.empty()) throw Violation("no drafts while a step is running");
  return runner_->draft(step);
}

void LateRunner::read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) {
  if (!under_way_.empty()) throw Violation("no read while a step is running");
  runner_->read(view, unit, bytes);
}

void LateRunner::write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) {
  if (!under_way_.empty()) throw Violation("no write while a step is running");
  runner_->write(view, unit, bytes);
}

void LateRunner::check() const {
  if (violation_) std::rethrow_exception(violation_);
}

}  // namespace hyb::sim
