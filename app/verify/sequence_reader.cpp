#include "app/verify/sequence_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "app/ui/process.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

template <typename T>
T need(std::optional<T> taken) {
  if (!taken) throw Error(ErrorKind::memory, "the pools are too small for the text");
  return *std::move(taken);
}

}  // namespace

SequenceReader::SequenceReader(Runner& runner, MemoryPool& pool, std::span<const TokenId> tokens)
    : runner_(&runner), pool_(&pool), tokens_(tokens), memory_(need(pool.start())) {
  const Capacity capacity = runner.capacity();
  step_tokens_ = capacity.step_tokens;
  rows_max_ = std::min(std::max(capacity.step_samples, capacity.sequences_max), step_tokens_);
}

void SequenceReader::run(std::int32_t count, bool wants_logits) {
  if (stop_signal() != 0) throw Error(ErrorKind::runtime, "interrupted");
  static const SamplingParams greedy = {{.logprobs = 0}};  // the log-probability of the token alone
  const std::int32_t begin = position();
  if (!memory_.reserve(count)) need(std::optional<Memory>());
  Step step;
  step.keep_logits = wants_logits;
  step.spans.push_back(
      {.tokens = tokens_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
       .position = begin,
       .tables = memory_.tables(),
       .read_slot = memory_.read_slot(),
       .write_slot = memory_.write_slot()});
  for (std::int32_t row = 0; wants_logits && row < count; ++row) {
    step.spans.back().samples.push_back(
        {.token = row,
         .params = &greedy,
         .draw = 0,
         .history = tokens_.first(static_cast<std::size_t>(begin + row + 1)),
         .prompt_tokens = begin + row + 1});
  }
  step.orders = pool_->take_orders();
  result_ = runner_->run(step);
  memory_.keep(count);
}

void SequenceReader::skip_to(std::int32_t end) {
  while (position() < end) run(std::min(step_tokens_, end - position()), false);
}

std::vector<LogitsRow> SequenceReader::read(std::int32_t count) {
  run(count, true);
  const std::size_t width = result_.logits.size() / result_.sampled.size();
  std::vector<LogitsRow> rows;
  for (const SampledToken& sampled : result_.sampled) {
    if (!sampled.finite) {
      throw Error(ErrorKind::runtime,
                  fmt::format("the model's logits are not numbers after token {} of the text",
                              position() - count + static_cast<std::int32_t>(rows.size())));
    }
    rows.emplace_back(std::span<const float>(result_.logits).subspan(rows.size() * width, width),
                      sampled.token, sampled.logprob);
  }
  return rows;
}

void SequenceReader::go_through_snapshot() {
  const Checkpoint checkpoint = need(memory_.checkpoint(Precision::int8));
  memory_ = {};
  memory_ = need(pool_->resume(checkpoint));
}

}  // namespace hyb::app
