#include "app/bench/bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/bench/case_run.h"
#include "app/bench/utc_time.h"
#include "app/ui/process.h"
#include "core/base/error.h"
#include "core/engine/trace_recorder.h"

namespace hyb::app {
namespace {

constexpr std::int32_t probe_passes_min = 5;

/// Whether the probe's buffer and a short case go beside the weights.
bool has_room_for_reader(const BareModel& model) {
  const models::RunnerOptions short_case = CaseRun::needs(model, {.length = 1}, 1);
  return model.model.weights.bytes() + model.runner_bytes(short_case) + Probes::read_bytes <=
         model.budget;
}

}  // namespace

Bench::Bench(BareModel& model, const BenchOptions& options)
    : model_(&model),
      options_(options),
      has_read_probe_(has_room_for_reader(model)),
      probes_(model.queue, model.model.geometry.activation_dtype, has_read_probe_),
      card_(options.card),
      roofline_(model.model.plan, *model.outline.family, model.model.geometry) {}

std::string Bench::refusal(const BenchCase& test) const {
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
  if (const std::size_t bytes = bytes_for(room); bytes > model_->budget) {
    return fmt::format("does not fit: needs {}, --memory allows {}", bytes_text(bytes),
                       bytes_text(model_->budget));
  }
  return "";
}

std::size_t Bench::bytes_for(const CaseRoom& room) const {
  return model_->model.weights.bytes() +
         model_->runner_bytes(CaseRun::needs(*model_, room, options_.chunk_tokens)) +
         (has_read_probe_ ? Probes::read_bytes : 0);
}

void Bench::expect(std::span<const BenchCase> cases) {
  CaseRoom room;
  for (const BenchCase& test : cases) {
    if (refusal(test).empty()) room.include(test);
  }
  shared_.reset();
  room_ = room.length > 0 && bytes_for(room) <= model_->budget ? room : CaseRoom();
}

CaseRun& Bench::case_run_for(const BenchCase& test) {
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

Measurement Bench::run(const BenchCase& test) {
  Measurement row = {.test = test,
                     .started = utc_now(),
                     .samples_ns = {},
                     .work = {},
                     .ceilings = {},
                     .card = {},
                     .failure = {}};
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
void Bench::record(const CaseRun& sequences, const BenchCase& test,
                   std::chrono::steady_clock::time_point begin) {
  const auto prompt = static_cast<std::size_t>(std::max(test.depth + test.prompt, 1));
  for (std::int32_t sequence = 0; sequence < test.batch; ++sequence) {
    const RequestId id{recorded_++};
    const std::span<const TokenId> tokens = sequences.tokens(sequence);
    options_.recorder->submitted(id, 1, tokens.first(prompt), begin);
    options_.recorder->ended(id, 0, tokens.subspan(prompt));
  }
}

void Bench::measure(Measurement& row) {
  constexpr std::size_t warm_up_tokens = 4;
  CaseRun& sequences = case_run_for(row.test);
  sequences.choose(row.test);
  // Every page of the workspace is touched once before anything counts.
  const std::size_t prompt_steps =
      timed_steps({.prompt = row.test.prompt, .batch = row.test.batch}, options_.chunk_tokens)
          .size();
  probes_.forget();
  bool go_on = sequences.reach_depth() && sequences.repeat(prompt_steps + warm_up_tokens) >= 0;
  // A-B-B-A: what drifts in the machine meets measurements and probes alike.
  const std::int32_t rounds = std::max(options_.repetitions, probe_passes_min);
  for (std::int32_t i = 0; i < rounds && go_on; ++i) {
    if (i % 2 == 0) probes_.run();
    if (i < options_.repetitions) {
      const auto begin = std::chrono::steady_clock::now();
      card_.begin();
      const std::int64_t elapsed = sequences.repeat();
      row.card.add(card_.end());
      if (elapsed >= 0 && options_.recorder != nullptr) record(sequences, row.test, begin);
      go_on = elapsed >= 0;
      if (go_on) row.samples_ns.push_back(elapsed);
    }
    if (i % 2 == 1) probes_.run();
    go_on = go_on && stop_signal() == 0;
  }
  row.ceilings = probes_.best();
  const auto done = static_cast<std::int32_t>(row.samples_ns.size());
  if (done < options_.repetitions) {
    row.status = fmt::format("interrupted: {} of {} repetitions", done, options_.repetitions);
  }
}

}  // namespace hyb::app
