#include "app/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>

#include "app/model_outline.h"
#include "app/template_probe.h"
#include "app/trace_file.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "kernels/card.h"
#include "models/roofline.h"

namespace hyb::app {

struct Session::Parts {
  Parts(const ModelOptions& asked, const SessionShape& wanted, const Environment& environment);

  void load(const ModelOptions& options);
  void plan();
  bool free_pools();
  void make_runner();
  void shrink_pools(const Error& reason);
  void start_engine(Runner& on);
  std::int32_t vocab_used() const;
  models::Roofline roofline() const { return {model.plan, *outline.family, model.geometry}; }
  PrefillCost expected_cost() const;
  PrefixCacheOptions prefix_options() const;
  bool is_exact() const;

  std::chrono::steady_clock::time_point opened = std::chrono::steady_clock::now();
  SessionShape shape;
  ReuseOptions reuse;
  models::GraphOptions graphs;
  ModelSource source;
  ModelOutline outline;
  ModelTexts texts;
  std::unique_ptr<kernels::Queue> queue;
  models::Model model;
  Budget budget{0};
  bool may_shrink = false;  ///< --memory is auto: pools may become smaller than was planned
  std::int32_t context = 0;
  MemoryPlan memory;
  std::future<std::unique_ptr<kernels::SuperblockMap>> superblocks;
  std::unique_ptr<models::ModelRunner> runner;
  std::unique_ptr<TraceFile> trace;
  std::unique_ptr<Engine> engine;
  std::chrono::nanoseconds load_time{0};
};

Session::Parts::Parts(const ModelOptions& asked, const SessionShape& wanted,
                      const Environment& environment)
    : shape(wanted),
      reuse(asked.reuse),
      graphs(graphs_of(asked)),
      source(ModelSource::find(asked.model, environment)),
      outline(outline_of(source, asked)) {
  // Tokenizer and template are read while the weights are packed.
  auto reading = std::async(std::launch::async, [this] { return read_texts(source); });
  load(asked);
  texts = reading.get();
  if (texts.tokenizer && texts.tokenizer->size() > model.plan.vocab) {
    throw Error(ErrorKind::model,
                fmt::format("{}: has ids up to {}, the model's vocabulary ends at {}",
                            source.path_of("tokenizer.json"), texts.tokenizer->size() - 1,
                            model.plan.vocab - 1));
  }
  make_runner();
  start_engine(*runner);
  load_time = std::chrono::steady_clock::now() - opened;
}

void Session::Parts::load(const ModelOptions& options) {
  check_loadable(source, options);
  budget = budget_of(options);  // of what is free before anything is taken
  queue = std::make_unique<kernels::Queue>(make_queue(options));
  may_shrink = options.memory == "auto";
  context = options.context;
  plan();  // whether it fits is known before a weight is read
  // A card's memory is mapped while weights are read: gigabytes of it take seconds.
  if (queue->device() == kernels::Device::cuda) {
    superblocks = std::async(std::launch::async, [this] {
      return models::map_superblocks(kernels::Device::cuda, models::store_layout(memory.pools),
                                     memory.mapping);
    });
  }
  model = load_weights_of(source, outline, options, *queue, [this] { return free_pools(); });
}

void Session::Parts::plan() {
  memory = plan_memory(outline.plan, outline.geometry, budget, context, queue->threads(), shape);
}

/// For a weight that finds no room: pools can be made anew, and smaller.
bool Session::Parts::free_pools() {
  if (!may_shrink || !superblocks.valid()) return false;
  try {
    superblocks.get();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
  }
  return true;
}

std::int32_t Session::Parts::vocab_used() const {
  return texts.tokenizer ? std::min(texts.tokenizer->size(), model.plan.vocab) : model.plan.vocab;
}

/// Until prefill is measured. The speed is a guess; how long prompts compare to short ones is not.
PrefillCost Session::Parts::expected_cost() const {
  constexpr double flops_per_thread_second = 5e10;
  const models::PrefillFlops flops = roofline().prefill();
  return prefill_cost_of_flops(flops.linear, flops.square,
                               flops_per_thread_second * queue->threads());
}

/// Whether what is reused is what would be run again, to the bit. Where it is not, answers must not
/// depend on a clock that decides what is remembered.
bool Session::Parts::is_exact() const {
  return reuse.snapshots != "int8" && queue->batch_invariant();
}

PrefixCacheOptions Session::Parts::prefix_options() const {
  PrefixCacheOptions options;
  options.enabled = reuse.prefixes == "on" && memory.mapping.mode != kernels::MapMode::flat;
  if (reuse.snapshots == "int8") options.precision = Precision::int8;
  if (reuse.eviction == "lru") options.eviction = EvictionRule::lru;
  options.pages_are_exact = queue->batch_invariant();
  options.cost = expected_cost();
  if (texts.tokenizer && texts.chat_template) {
    options.placement = placement_prior(*texts.chat_template, *texts.tokenizer);
  }
  return options;
}

void Session::Parts::make_runner() {
  models::RunnerOptions options = runner_options(model.plan, memory, shape);
  options.vocab_used = vocab_used();
  options.graphs = graphs;
  while (!runner) {
    try {
      runner = std::make_unique<models::ModelRunner>(
          *queue, model.plan, model.weights, model.geometry, options,
          superblocks.valid() ? superblocks.get() : nullptr);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::memory) throw;
      shrink_pools(error);
      options.memory = models::store_layout(memory.pools);
      options.positions_max = memory.length_max;
    }
  }
}

/// The device has less than it said, or gave some to another process meanwhile.
void Session::Parts::shrink_pools(const Error& reason) {
  const std::size_t before = memory.pool_bytes();
  const auto holdings = [&] {
    return fmt::format("{}; of {} allowed the weights take {}, the workspace {}, the pools {}",
                       reason.what(), bytes_text(memory.budget), bytes_text(memory.weights),
                       bytes_text(memory.workspace), bytes_text(before));
  };
  if (!may_shrink) throw Error(ErrorKind::memory, holdings());
  budget.pool_bytes = before - before / 8;
  if (queue->device() == kernels::Device::cuda) {
    const std::size_t free = kernels::card().free_bytes;
    const std::size_t room = free > memory.workspace ? free - memory.workspace : 0;
    budget.pool_bytes = std::min(budget.pool_bytes, room);
  }
  try {
    plan();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
    throw Error(ErrorKind::memory, holdings() + ", and smaller ones hold no sequence");
  }
  log::warning(fmt::format("{}; the pools shrink from {} to {}", reason.what(), bytes_text(before),
                           bytes_text(memory.pool_bytes())));
}

void Session::Parts::start_engine(Runner& on) {
  engine.reset();
  engine = std::make_unique<Engine>(on, texts.tokenizer ? &*texts.tokenizer : nullptr,
                                    EngineOptions{.length_max = memory.length_max,
                                                  .sequences_max = shape.sequences_max,
                                                  .chunk_tokens = shape.chunk_tokens,
                                                  .prefixes = prefix_options(),
                                                  .measures_prefill = is_exact(),
                                                  .audit = reuse.audit});
  if (!reuse.record.empty() && !trace) trace = std::make_unique<TraceFile>(reuse.record);
  if (trace) engine->record(&trace->recorder());
}

Session Session::open(const ModelOptions& options, const SessionShape& shape,
                      const Environment& environment) {
  return Session(std::make_unique<Parts>(options, shape, environment));
}

Session::Session(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Session::Session(Session&&) noexcept = default;
Session::~Session() = default;

Engine& Session::engine() { return *parts_->engine; }
models::ModelRunner& Session::runner() { return *parts_->runner; }

void Session::restart_engine(const ReuseOptions& reuse, Runner& runner) {
  parts_->reuse = reuse;
  parts_->start_engine(runner);
}

models::Roofline Session::roofline() const { return parts_->roofline(); }
kernels::Queue& Session::queue() { return *parts_->queue; }
const models::Model& Session::model() const { return parts_->model; }
const ModelSource& Session::source() const { return parts_->source; }
const MemoryPlan& Session::memory() const { return parts_->memory; }
std::chrono::nanoseconds Session::load_time() const { return parts_->load_time; }

const Tokenizer* Session::tokenizer() const {
  return parts_->texts.tokenizer ? &*parts_->texts.tokenizer : nullptr;
}

const Tokenizer& Session::need_tokenizer() const {
  return app::need_tokenizer(parts_->texts, parts_->source);
}

const ChatTemplate& Session::need_chat_template() const {
  return app::need_chat_template(parts_->texts, parts_->source);
}

const ChatTemplate* Session::chat_template() const {
  return parts_->texts.chat_template ? &*parts_->texts.chat_template : nullptr;
}

const Json& Session::generation_config() const { return parts_->texts.generation_config; }
const std::vector<TokenId>& Session::stop_tokens() const { return parts_->texts.stop_tokens; }

Request Session::request(const GenerationOptions& options) const {
  return request_of(options, parts_->texts);
}

Request request_of(const GenerationOptions& options, const ModelTexts& texts) {
  Request request;
  request.max_tokens = options.max_tokens.value_or(-1);
  request.sampling = sampling_of(options, texts.generation_config);
  request.stop = options.stop;
  request.stop_tokens = texts.stop_tokens;
  request.ignore_eos = options.ignore_eos;
  return request;
}

}  // namespace hyb::app
