#include "tests/sim/late_runner.h"

#include <algorithm>
#include <utility>

#include "tests/sim/toy_runner.h"

namespace hyb::sim {

const char* name_of(LateBug bug) {
  static const char* const names[] = {
      "none",         "delivered twice", "token lost",      "rows exchanged",
      "runs unasked", "step lost",       "extra token kept"};
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

void LateRunner::begin(Kept step) {
  if (under_way_) throw Violation("one step is under way at a time");
  under_way_.emplace(std::move(step));
  is_done_ = false;
  failure_ = nullptr;
  if (!random_.chance(30)) return;
  done();
  if (failure_ == nullptr || random_.chance(50)) return;
  under_way_.reset();  // it is known to have failed before the call returns
  std::rethrow_exception(failure_);
}

/// Runs the step under way, if that was not done yet.
void LateRunner::done() {
  if (std::exchange(is_done_, true)) return;
  last_ = std::exchange(result_, {});
  try {
    result_ = runner_->run(under_way_->step);
  } catch (const StepFailure&) {
    failure_ = std::current_exception();
  } catch (...) {
    violation_ = failure_ = std::current_exception();
  }
}

void LateRunner::launch(const Step& step) {
  check();
  next_.reset();
  begin(Kept(step));
}

void LateRunner::prepare(const Step& next) {
  check();
  if (!under_way_) throw Violation("a step is prepared while another one runs");
  const std::vector<Span>& now = under_way_->step.spans;
  bool follows = next.orders.empty() && next.spans.size() == now.size() && !next.keep_logits;
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
  if (random_.chance(30)) done();
}

void LateRunner::launch_prepared() {
  check();
  if (!next_) throw Violation("only what was prepared is begun");
  Kept step = *std::exchange(next_, std::nullopt);
  ++begun_early;
  if (bug_ == LateBug::step_lost && begun_early % 3 == 0) {
    under_way_.emplace(std::move(step));
    is_done_ = true;
    failure_ = nullptr;
    return;
  }
  const std::size_t rows = step.step.spans.size();
  const StepResult& drawn = bug_ == LateBug::token_lost ? last_ : result_;
  for (std::size_t i = 0; i < rows; ++i) {
    const std::size_t from = bug_ == LateBug::rows_exchanged ? rows - 1 - i : i;
    if (from < drawn.sampled.size()) step.give(i, drawn.sampled[from].token);
  }
  begin(std::move(step));
}

StepResult LateRunner::wait() {
  if (!under_way_) throw Violation("only what is under way is waited for");
  done();
  under_way_.reset();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  if (bug_ == LateBug::runs_unasked && next_) {
    Kept unasked = *next_;
    for (std::size_t i = 0; i < unasked.step.spans.size(); ++i) {
      unasked.give(i, result_.sampled[i].token);
    }
    runner_->run(unasked.step);
  }
  const bool twice = bug_ == LateBug::delivered_twice && begun_early % 4 == 3 &&
                     last_.sampled.size() == result_.sampled.size();
  return twice ? last_ : result_;
}

SampledToken LateRunner::draw(std::span<const float> logits, const SampleRow& row) {
  if (under_way_) throw Violation("no draw while a step is running");
  return runner_->draw(logits, row);
}

void LateRunner::read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) {
  if (under_way_) throw Violation("no read while a step is running");
  runner_->read(view, unit, bytes);
}

void LateRunner::write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) {
  if (under_way_) throw Violation("no write while a step is running");
  runner_->write(view, unit, bytes);
}

void LateRunner::check() const {
  if (violation_) std::rethrow_exception(violation_);
}

}  // namespace hyb::sim
