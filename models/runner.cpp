#include "models/runner.h"

#include <algorithm>

#include "core/base/error.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

Decoder::Limits limits_of(const RunnerOptions& options) {
  return {
      .tokens = options.step_tokens, .rows = options.step_rows, .positions = options.positions_max};
}

Tensor table(std::vector<std::int32_t>& values) {
  if (values.empty()) return {};
  return Tensor(values.data(), DType::i32, {static_cast<std::int64_t>(values.size())});
}

std::int32_t count_of(const auto& values) { return static_cast<std::int32_t>(values.size()); }

}  // namespace

ModelRunner::ModelRunner(kernels::Queue& queue, const Plan& plan, const Weights& weights,
                         const Geometry& geometry, const RunnerOptions& options)
    : queue_(queue),
      plan_(plan),
      geometry_(geometry),
      options_(options),
      store_(queue.device(), geometry, options.pages, options.slots),
      decoder_(queue, plan, weights, store_, geometry, limits_of(options)),
      sample_workspace_(queue.device(),
                        kernels::sample_workspace_bytes(plan.vocab, queue.threads())) {
  const auto rows = static_cast<std::size_t>(options.step_rows);
  sample_params_.reserve(rows);
  biases_.resize(rows);
  sampled_.resize(rows);
}

Capacity ModelRunner::capacity() const {
  return {.pages = options_.pages,
          .slots = options_.slots,
          .page_tokens = geometry_.page_bytes == 0 ? 0 : geometry_.page_tokens,
          .step_tokens = options_.step_tokens,
          .step_rows = options_.step_rows,
          .vocab = options_.vocab_used};
}

std::size_t ModelRunner::workspace_bytes() const {
  return decoder_.scratch_bytes() + sample_workspace_.bytes();
}

std::size_t ModelRunner::workspace_bytes(const Plan& plan, const Geometry& geometry,
                                         const RunnerOptions& options, int threads) {
  return Decoder::scratch_bytes(plan, geometry.activation_dtype, limits_of(options)) +
         kernels::sample_workspace_bytes(plan.vocab, threads);
}

void ModelRunner::Tables::clear() {
  for (auto* values : {&tokens, &position_of_row, &span_begin, &position, &read_slot, &write_slot,
                       &page_begin, &pages, &sample_rows}) {
    values->clear();
  }
}

void ModelRunner::check(const Step& step) const {
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  for (const Span& span : step.spans) {
    tokens += count_of(span.tokens);
    rows += count_of(span.samples);
    require(!span.tokens.empty(), "runner: a span has at least one token");
    const std::int64_t end = std::int64_t{span.position} + count_of(span.tokens);
    require(end <= options_.positions_max, "runner: a sequence is longer than was planned for");
    require(geometry_.page_bytes == 0 ||
                end <= std::int64_t{count_of(span.pages)} * geometry_.page_tokens,
            "runner: a span's page table has room for its tokens");
    require(geometry_.slot_bytes == 0 ||
                (index(span.write_slot) >= 0 && index(span.write_slot) < options_.slots &&
                 index(span.read_slot) < options_.slots),
            "runner: a span names slots that exist");
    for (const PageId page : span.pages) {
      require(index(page) >= 0 && index(page) < options_.pages, "runner: a page that exists");
    }
    for (const TokenId token : span.tokens) {
      require(index(token) >= 0 && index(token) < plan_.vocab, "runner: a token of the vocabulary");
    }
  }
  require(tokens <= options_.step_tokens && rows <= options_.step_rows &&
              count_of(step.spans) <= options_.step_rows,
          "runner: a step within capacity()");
}

void ModelRunner::stage(const Step& step) {
  staged_.clear();
  for (const Span& span : step.spans) {
    const std::int32_t begin = count_of(staged_.tokens);
    staged_.span_begin.push_back(begin);
    staged_.page_begin.push_back(count_of(staged_.pages));
    staged_.position.push_back(span.position);
    staged_.read_slot.push_back(index(span.read_slot));
    staged_.write_slot.push_back(index(span.write_slot));
    for (std::int32_t i = 0; i < count_of(span.tokens); ++i) {
      staged_.tokens.push_back(index(span.tokens[static_cast<std::size_t>(i)]));
      staged_.position_of_row.push_back(span.position + i);
    }
    for (const PageId page : span.pages) staged_.pages.push_back(index(page));
    for (const hyb::SampleRow& row : span.samples) staged_.sample_rows.push_back(begin + row.token);
  }
  staged_.span_begin.push_back(count_of(staged_.tokens));
  staged_.page_begin.push_back(count_of(staged_.pages));
}

StepTables ModelRunner::tables() {
  return {.tokens = table(staged_.tokens),
          .position_of_row = table(staged_.position_of_row),
          .span_begin = table(staged_.span_begin),
          .position = table(staged_.position),
          .read_slot = table(staged_.read_slot),
          .write_slot = table(staged_.write_slot),
          .page_begin = table(staged_.page_begin),
          .pages = table(staged_.pages)};
}

StepResult ModelRunner::run(const Step& step) {
  check(step);
  store_.carry_out(step.orders);
  if (step.spans.empty()) return {};
  stage(step);
  const Tensor logits = decoder_.run(tables(), table(staged_.sample_rows), observer_);
  if (logits.empty()) return {};
  return sample(step, logits);
}

StepResult ModelRunner::sample(const Step& step, const Tensor& logits) {
  sample_params_.clear();
  for (const Span& span : step.spans) {
    for (const hyb::SampleRow& row : span.samples) {
      const SamplingParams& params = *row.params;
      auto& bias = biases_[sample_params_.size()];
      bias.clear();
      for (const LogitBias& one : params.bias) bias.push_back({one.token, one.bias});
      sample_params_.push_back({.temperature = params.temperature,
                                .top_k = params.top_k,
                                .top_p = params.top_p,
                                .min_p = params.min_p,
                                .repetition_penalty = params.repetition_penalty,
                                .frequency_penalty = params.frequency_penalty,
                                .presence_penalty = params.presence_penalty,
                                .seed = params.seed,
                                .draw = row.draw,
                                .history = row.history,
                                .prompt_tokens = row.prompt_tokens,
                                .bias = bias,
                                .logprobs = params.logprobs});
    }
  }
  const std::span<kernels::SampledToken> out(sampled_.data(), sample_params_.size());
  const auto workspace = static_cast<std::int64_t>(sample_workspace_.bytes());
  kernels::sample(queue_, {.logits = logits,
                           .vocab_used = options_.vocab_used,
                           .rows = sample_params_,
                           .out = out,
                           .workspace = sample_workspace_.tensor(0, DType::u8, {workspace})});
  StepResult result;
  for (const kernels::SampledToken& drawn : out) {
    hyb::SampledToken& token = result.sampled.emplace_back();
    token = {.token = drawn.token,
             .finite = drawn.outcome == kernels::SampleOutcome::chosen,
             .logprob = drawn.logprob,
             .top = {}};
    for (int i = 0; i < drawn.alternatives; ++i) {
      const kernels::TokenLogprob& likely = drawn.likeliest[static_cast<std::size_t>(i)];
      token.top.push_back({likely.token, likely.logprob});
    }
  }
  if (step.keep_logits) {
    for (std::int64_t row = 0; row < logits.dim(0); ++row) {
      const float* values = logits.row<float>(row);
      result.logits.insert(result.logits.end(), values, values + logits.dim(1));
    }
  }
  return result;
}

}  // namespace hyb::models
