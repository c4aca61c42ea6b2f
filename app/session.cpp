#include "app/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>

#include "app/model_outline.h"
#include "core/base/error.h"

namespace hyb::app {

struct Session::Parts {
  Parts(const ModelOptions& asked, const SessionShape& wanted, const Environment& environment);

  void load(const ModelOptions& options);
  void read_texts();
  void start_engine(const MemoryPlan& plan);
  std::int32_t vocab_used() const;

  std::chrono::steady_clock::time_point opened = std::chrono::steady_clock::now();
  SessionShape shape;
  ModelSource source;
  ModelOutline outline;
  Json generation_config = Json::object();
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::vector<TokenId> stop_tokens;
  std::unique_ptr<kernels::Queue> queue;
  models::Model model;
  MemoryPlan memory;
  std::unique_ptr<models::ModelRunner> runner;
  std::unique_ptr<Engine> engine;
  std::chrono::nanoseconds load_time{0};
};

namespace {

/// eos_token_id: a number or a list of them.
void add_stop_tokens(const Json& config, std::vector<TokenId>& tokens) {
  const auto found = config.find("eos_token_id");
  if (found == config.end()) return;
  const auto add = [&](const Json& id) {
    if (!id.is_number_integer()) return;
    const TokenId token{id.get<std::int32_t>()};
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
  };
  if (found->is_array()) {
    for (const Json& id : *found) add(id);
  } else {
    add(*found);
  }
}

Json read_json(const ModelSource& source, const std::string& file) {
  const auto text = source.read(file);
  if (!text) return Json::object();
  Json json = parse_json(*text, source.path_of(file), {.python_numbers = true});
  if (!json.is_object()) {
    throw Error(ErrorKind::model, source.path_of(file) + ": the top level is not an object");
  }
  return json;
}

}  // namespace

Session::Parts::Parts(const ModelOptions& asked, const SessionShape& wanted,
                      const Environment& environment)
    : shape(wanted),
      source(ModelSource::find(asked.model, environment)),
      outline(outline_of(source, asked.dtype)) {
  // Tokenizer and template are read while the weights are packed.
  auto texts = std::async(std::launch::async, [this] { read_texts(); });
  load(asked);
  texts.get();
  if (tokenizer && tokenizer->size() > model.plan.vocab) {
    throw Error(
        ErrorKind::model,
        fmt::format("{}: has ids up to {}, the model's vocabulary ends at {}",
                    source.path_of("tokenizer.json"), tokenizer->size() - 1, model.plan.vocab - 1));
  }
  start_engine(memory);
  load_time = std::chrono::steady_clock::now() - opened;
}

void Session::Parts::read_texts() {
  generation_config = read_json(source, "generation_config.json");
  add_stop_tokens(generation_config, stop_tokens);
  add_stop_tokens(read_json(source, "config.json"), stop_tokens);
  if (const auto text = source.read("tokenizer.json")) {
    tokenizer = Tokenizer::from_json(*text, source.path_of("tokenizer.json"),
                                     source.read("tokenizer_config.json").value_or(""),
                                     source.path_of("tokenizer_config.json"));
    if (const auto eos = tokenizer->eos()) {
      if (std::find(stop_tokens.begin(), stop_tokens.end(), *eos) == stop_tokens.end()) {
        stop_tokens.push_back(*eos);
      }
    }
  }
  if (const auto text = source.chat_template("default")) {
    chat_template = ChatTemplate::parse(*text, source.path_of("chat template"));
  }
}

void Session::Parts::load(const ModelOptions& options) {
  queue = std::make_unique<kernels::Queue>(make_queue(options));
  // Whether it fits is known before a weight is read.
  memory = plan_memory(outline.plan, outline.geometry, budget_bytes(parse_memory(options.memory)),
                       options.context, queue->threads(), shape);
  model = load_weights_of(source, outline, options, *queue);
}

std::int32_t Session::Parts::vocab_used() const {
  return tokenizer ? std::min(tokenizer->size(), model.plan.vocab) : model.plan.vocab;
}

void Session::Parts::start_engine(const MemoryPlan& plan) {
  models::RunnerOptions options = runner_options(model.plan, plan, shape);
  options.vocab_used = vocab_used();
  runner = std::make_unique<models::ModelRunner>(*queue, model.plan, model.weights, model.geometry,
                                                 options);
  engine = std::make_unique<Engine>(*runner, tokenizer ? &*tokenizer : nullptr,
                                    EngineOptions{.length_max = plan.length_max,
                                                  .sequences_max = shape.sequences_max,
                                                  .chunk_tokens = shape.chunk_tokens});
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
kernels::Queue& Session::queue() { return *parts_->queue; }
const models::Model& Session::model() const { return parts_->model; }
const ModelSource& Session::source() const { return parts_->source; }
const MemoryPlan& Session::memory() const { return parts_->memory; }
std::chrono::nanoseconds Session::load_time() const { return parts_->load_time; }

const Tokenizer* Session::tokenizer() const {
  return parts_->tokenizer ? &*parts_->tokenizer : nullptr;
}

const Tokenizer& Session::need_tokenizer() const {
  if (!parts_->tokenizer) {
    throw Error(ErrorKind::model, parts_->source.path_of("tokenizer.json") +
                                      ": is missing; without it there is no text in or out");
  }
  return *parts_->tokenizer;
}

const ChatTemplate* Session::chat_template() const {
  return parts_->chat_template ? &*parts_->chat_template : nullptr;
}

const Json& Session::generation_config() const { return parts_->generation_config; }
const std::vector<TokenId>& Session::stop_tokens() const { return parts_->stop_tokens; }

Request Session::request(const GenerationOptions& options) const {
  Request request;
  request.max_tokens = options.max_tokens.value_or(-1);
  request.sampling = sampling_of(options, parts_->generation_config);
  request.stop = options.stop;
  request.stop_tokens = parts_->stop_tokens;
  request.ignore_eos = options.ignore_eos;
  return request;
}

}  // namespace hyb::app
