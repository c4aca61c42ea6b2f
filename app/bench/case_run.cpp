#include "app/bench/case_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "app/ui/process.h"
#include "core/base/error.h"
#include "kernels/card.h"

namespace hyb::app {
namespace {

std::int32_t pages_per_sequence(const models::Geometry& geometry, const CaseRoom& room) {
  if (geometry.page_bytes == 0) return 0;
  return (room.length + geometry.page_tokens - 1) / geometry.page_tokens;
}

}  // namespace

void CaseRoom::include(const BenchCase& test) {
  length = std::max(length, test.length());
  batch = std::max(batch, test.batch);
  longest_span = std::max({longest_span, test.prompt, test.depth});
}

bool CaseRoom::has_room_for(const BenchCase& test) const {
  return test.length() <= length && test.batch <= batch && test.prompt <= longest_span &&
         test.depth <= longest_span;
}

models::RunnerOptions CaseRun::needs(const BareModel& model, const CaseRoom& room,
                                     std::int32_t chunk_tokens) {
  const models::Geometry& geometry = model.model.geometry;
  return {.memory =
              models::flat_memory(geometry, pages_per_sequence(geometry, room) * room.batch,
                                  2 * room.batch, kernels::handle_bytes_min(model.queue.device())),
          .step_tokens = std::max(std::min(chunk_tokens, room.longest_span), room.batch),
          .step_rows = room.batch,
          .positions_max = room.length,
          .vocab_used = model.model.plan.vocab,
          .graphs = model.graphs};
}

CaseRun::CaseRun(BareModel& model, const CaseRoom& room, std::int32_t chunk_tokens)
    : chunk_tokens_(chunk_tokens),
      vocab_(model.model.plan.vocab),
      room_(room),
      runner_(model.queue, model.model.plan, model.model.weights, model.model.geometry,
              needs(model, room, chunk_tokens)) {
  const auto batch = static_cast<std::size_t>(room.batch);
  tokens_.assign(batch, std::vector<TokenId>(static_cast<std::size_t>(room.length)));
  stands_at_.assign(batch, 0);
  const MemoryLayout layout = runner_.capacity().memory;
  first_slot_ = layout.first_unit(layout.slot_view());
  tables_.assign(batch, std::vector<PageTable>(layout.groups.size()));
  const std::int32_t pages = pages_per_sequence(model.model.geometry, room);
  for (std::int32_t page = 0; page < pages * room.batch; ++page) {
    tables_[static_cast<std::size_t>(page % room.batch)][0].push_back(PageId{page});
  }
  draw_tokens(0);
}

void CaseRun::choose(const BenchCase& test) {
  require(room_.has_room_for(test), "bench: there is room for the case");
  test_ = test;
  timed_steps_ = timed_steps(test, chunk_tokens_);
  runner_.choose_graphs(parse_graphs(test.graphs));
}

SlotId CaseRun::depth_slot(std::int32_t sequence) const { return SlotId{first_slot_ + sequence}; }

SlotId CaseRun::live_slot(std::int32_t sequence) const {
  return SlotId{first_slot_ + room_.batch + sequence};
}

void CaseRun::draw_tokens(std::int32_t from) {
  std::mt19937_64 random(seed_++);
  for (std::vector<TokenId>& tokens : tokens_) {
    for (auto token = tokens.begin() + from; token != tokens.end(); ++token) {
      *token = TokenId{static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab_))};
    }
  }
}

void CaseRun::run(const BenchStep& step) {
  const auto position = static_cast<std::int32_t>(step.shape.position);
  Step call;
  for (std::int32_t i = 0; i < step.shape.sequences; ++i) {
    const std::int32_t sequence = step.first + i;
    const auto at = static_cast<std::size_t>(sequence);
    const bool to_depth = position < test_.depth;
    const SlotId live = to_depth ? depth_slot(sequence) : live_slot(sequence);
    Span span = {.tokens = std::span<const TokenId>(tokens_[at])
                               .subspan(static_cast<std::size_t>(position),
                                        static_cast<std::size_t>(step.shape.tokens)),
                 .position = position,
                 .tables = tables_[at],
                 .read_slot = position == 0             ? no_slot
                              : position == test_.depth ? depth_slot(sequence)
                                                        : live,
                 .write_slot = live,
                 .samples = {}};
    if (step.shape.rows > 0) {
      span.samples.push_back({.token = static_cast<std::int32_t>(step.shape.tokens) - 1,
                              .params = &greedy_,
                              .draw = 0,
                              .history = {},
                              .prompt_tokens = 0});
    }
    call.spans.push_back(std::move(span));
  }
  last_ = runner_.run(call);
  for (const SampledToken& sampled : last_.sampled) {
    if (sampled.finite) continue;
    throw Error(
        ErrorKind::runtime,
        fmt::format("the model produced NaN logits at position {}: its speed means nothing; "
                    "a weight is damaged or too large for this type",
                    position + step.shape.tokens - 1));
  }
}

bool CaseRun::reach_depth() {
  for (std::int32_t sequence = 0; sequence < test_.batch; ++sequence) {
    std::int32_t& stands_at = stands_at_[static_cast<std::size_t>(sequence)];
    if (stands_at > test_.depth) stands_at = 0;  // what is behind the depth can't be taken back
    for (const BenchStep& step : depth_steps(test_, sequence, stands_at, chunk_tokens_)) {
      if (stop_signal() != 0) return false;
      run(step);
      stands_at = static_cast<std::int32_t>(step.shape.position + step.shape.tokens);
    }
  }
  return true;
}

std::int64_t CaseRun::repeat(std::size_t steps_max) {
  draw_tokens(test_.depth);
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < std::min(steps_max, timed_steps_.size()); ++i) {
    if (stop_signal() != 0) return -1;
    run(timed_steps_[i]);
  }
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count();
}

}  // namespace hyb::app
