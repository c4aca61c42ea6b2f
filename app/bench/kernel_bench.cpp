#include "app/bench/kernel_bench.h"

#include <algorithm>
#include <random>

#include <fmt/format.h>

#include "app/base/texts.h"
#include "app/bench/bench_setting.h"
#include "app/ui/process.h"
#include "core/engine/trace.h"
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
          .sequences_max = room.batch,
          .positions_max = room.length,
          .vocab_used = model.model.plan.vocab,
          .graphs = model.settings.graphs};
}

CaseRun::CaseRun(BareModel& model, const CaseRoom& room, std::int32_t chunk_tokens)
    : chunk_tokens_(chunk_tokens),
      vocab_(model.model.plan.vocab),
      room_(room),
      runner_(model.queue, model.model.plan, model.model.weights, model.model.geometry,
              needs(model, room, chunk_tokens)) {
  const auto batch = static_cast<std::size_t>(room.batch);
  tokens_.assign(batch, std::vector<TokenId>(static_cast<std::size_t>(room.length)));
  kept_tokens_.assign(batch, 0);
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
  runner_.set_graphs(test.graphs.value_or(models::GraphOptions{}));
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
                 .write_slot = live};
    if (step.shape.rows > 0) {
      span.samples.push_back({.token = static_cast<std::int32_t>(step.shape.tokens) - 1,
                              .params = &greedy_,
                              .draw = 0,
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
    std::int32_t& stands_at = kept_tokens_[static_cast<std::size_t>(sequence)];
    if (stands_at > test_.depth) stands_at = 0;  // what is after the depth can't be taken back
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

namespace {

constexpr std::int32_t probe_passes_min = 5;

/// True if the probe's buffer and a short case fit next to the weights.
bool has_room_for_reader(const BareModel& model) {
  const models::RunnerOptions short_case = CaseRun::needs(model, {.length = 1}, 1);
  return model.model.weights.bytes() + model.runner_bytes(short_case) + Probes::read_bytes <=
         model.settings.memory.bytes;
}

}  // namespace

KernelBench::KernelBench(BareModel& model, const KernelBenchOptions& options)
    : model_(&model),
      options_(options),
      has_read_probe_(has_room_for_reader(model)),
      probes_(model.queue, model.model.geometry.load.activation, has_read_probe_),
      card_(options.card),
      roofline_(model.model.plan, model.model.geometry) {}

std::string KernelBench::refusal(const BenchCase& test) const {
  const models::Plan& plan = model_->model.plan;
  if (options_.length_max > 0 && test.length() > options_.length_max) {
    return fmt::format("{} tokens are more than --context {}", test.length(), options_.length_max);
  }
  if (plan.has_rope() && plan.positions_max > 0 && test.length() > plan.positions_max) {
    return fmt::format("{} tokens are more than the model's {} positions", test.length(),
                       plan.positions_max);
  }
  CaseRoom room;
  room.include(test);
  if (const std::size_t bytes = bytes_for(room); bytes > model_->settings.memory.bytes) {
    return fmt::format("does not fit: needs {}, --memory allows {}", bytes_text(bytes),
                       bytes_text(model_->settings.memory.bytes));
  }
  return "";
}

std::size_t KernelBench::bytes_for(const CaseRoom& room) const {
  return model_->model.weights.bytes() +
         model_->runner_bytes(CaseRun::needs(*model_, room, options_.chunk_tokens)) +
         (has_read_probe_ ? Probes::read_bytes : 0);
}

void KernelBench::expect(std::span<const BenchCase> cases) {
  CaseRoom room;
  for (const BenchCase& test : cases) {
    if (refusal(test).empty()) room.include(test);
  }
  shared_.reset();
  room_ = room.length > 0 && bytes_for(room) <= model_->settings.memory.bytes ? room : CaseRoom();
}

CaseRun& KernelBench::case_run_for(const BenchCase& test) {
  alone_.reset();
  if (room_.has_room_for(test)) {
    if (!shared_) shared_.emplace(*model_, room_, options_.chunk_tokens);
    return *shared_;
  }
  shared_.reset();
  CaseRoom room;
  room.include(test);
  return alone_.emplace(*model_, room, options_.chunk_tokens);
}

Measurement KernelBench::run(const BenchCase& test) {
  Measurement row = {.test = test, .started = utc_now()};
  for (const BenchStep& step : timed_steps(test, options_.chunk_tokens)) {
    row.work += roofline_.step(step.shape);
  }
  const auto fail = [&](ErrorKind kind, const std::string& why) {
    row.status = why;
    row.failure = kind;
    row.samples_ns.clear();
    shared_.reset();  // nothing is known of what its slots hold
  };
  if (const std::string why = refusal(test); !why.empty()) {
    row.status = why;
    row.failure = ErrorKind::memory;
    return row;
  }
  try {
    measure(row);
  } catch (const Error& error) {
    fail(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::memory, "does not fit: the machine is out of memory");
  }
  return row;
}

/// A prompt has a token at least: where only an answer is measured, its first one.
void KernelBench::record(const CaseRun& sequences, const BenchCase& test,
                         std::chrono::steady_clock::time_point begin) {
  const auto prompt = static_cast<std::size_t>(std::max(test.depth + test.prompt, 1));
  for (std::int32_t sequence = 0; sequence < test.batch; ++sequence) {
    const RequestId id{recorded_++};
    const std::span<const TokenId> tokens = sequences.tokens(sequence);
    options_.recorder->submitted(id, 1, tokens.first(prompt), begin);
    options_.recorder->ended(id, 0, tokens.subspan(prompt));
  }
}

void KernelBench::measure(Measurement& row) {
  constexpr std::size_t warm_up_tokens = 4;
  CaseRun& sequences = case_run_for(row.test);
  sequences.choose(row.test);
  // Every page of the workspace is touched once before anything counts.
  const std::size_t prompt_steps =
      timed_steps({.prompt = row.test.prompt, .batch = row.test.batch}, options_.chunk_tokens)
          .size();
  const bool probes = !options_.probes_once || probes_.best().flops_per_s == 0;
  if (probes) probes_.forget();
  bool go_on = sequences.reach_depth() && sequences.repeat(prompt_steps + warm_up_tokens) >= 0;
  // A-B-B-A: what drifts in the machine meets measurements and probes alike.
  const std::int32_t rounds = std::max(options_.repetitions, probes ? probe_passes_min : 0);
  for (std::int32_t i = 0; i < rounds && go_on; ++i) {
    if (probes && i % 2 == 0) probes_.run();
    if (i < options_.repetitions) {
      const auto begin = std::chrono::steady_clock::now();
      card_.begin();
      const std::int64_t elapsed = sequences.repeat();
      row.card.add(card_.end());
      if (elapsed >= 0 && options_.recorder != nullptr) record(sequences, row.test, begin);
      go_on = elapsed >= 0;
      if (go_on) row.samples_ns.push_back(elapsed);
    }
    if (probes && i % 2 == 1) probes_.run();
    go_on = go_on && stop_signal() == 0;
  }
  row.ceilings = probes_.best();
  const auto done = static_cast<std::int32_t>(row.samples_ns.size());
  if (done < options_.repetitions) {
    row.status = fmt::format("interrupted: {} of {} repetitions", done, options_.repetitions);
  }
}

}  // namespace hyb::app
