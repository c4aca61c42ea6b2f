#include "app/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>

#include "app/model_outline.h"
#include "app/template_probe.h"
#include "app/trace_file.h"
#include "core/base/error.h"
#include "models/roofline.h"

namespace hyb::app {

struct Session::Parts {
  Parts(const ModelOptions& asked, const SessionShape& wanted, const Environment& environment);

  void load(const ModelOptions& options);
  void make_runner();
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
  queue = std::make_unique<kernels::Queue>(make_queue(options));
  check_loadable(source, options);
  // Whether it fits is known before a weight is read.
  memory = plan_memory(outline.plan, outline.geometry, budget_of(options), options.context,
                       queue->threads(), shape);
  // A card's memory is mapped while weights are read: gigabytes of it take seconds.
  if (queue->device() == kernels::Device::cuda) {
    superblocks = std::async(std::launch::async, [this] {
      return models::map_superblocks(kernels::Device::cuda, models::store_layout(memory.pools),
                                     memory.mapping);
    });
  }
  model = load_weights_of(source, outline, options, *queue);
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
  runner = std::make_unique<models::ModelRunner>(*queue, model.plan, model.weights, model.geometry,
                                                 options,
                                                 superblocks.valid() ? superblocks.get() : nullptr);
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
  Request request;
  request.max_tokens = options.max_tokens.value_or(-1);
  request.sampling = sampling_of(options, parts_->texts.generation_config);
  request.stop = options.stop;
  request.stop_tokens = parts_->texts.stop_tokens;
  request.ignore_eos = options.ignore_eos;
  return request;
}

}  // namespace hyb::app
