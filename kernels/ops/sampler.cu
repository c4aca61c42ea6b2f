#include "kernels/ops/sampler.h"

#include <algorithm>

#include "core/base/error.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/recorded.h"
#include "kernels/ops/sample_steps.h"

namespace hyb::kernels::cuda {
namespace {

/// Other tables take their room after the jobs, and more where they do not fit.
constexpr std::size_t tables_bytes = 64 << 10;

std::size_t table_bytes(std::int64_t rows) {
  return static_cast<std::size_t>(rows) * sizeof(SampleJob) + tables_bytes;
}
std::size_t out_bytes(std::int64_t rows) {
  return static_cast<std::size_t>(rows) * sizeof(SampledToken);
}

std::size_t parts_bytes(std::int64_t rows) {
  return static_cast<std::size_t>(rows) * sizeof(SampleParts);
}

std::size_t candidates_bytes(std::int64_t rows) {
  return static_cast<std::size_t>(std::min(rows, sample_split_rows_max)) * sample_candidates_max *
         sizeof(SampleCandidate);
}

template <typename T>
T* stage_table(Staging& staging, std::span<const T> values) {
  const Staged<T> place = staging.take<T>(std::ssize(values));
  std::copy(values.begin(), values.end(), place.host.begin());
  return place.device;
}

}  // namespace

Sampler::Sampler(Stream& stream, std::int64_t rows_max)
    : stream_(stream), staging_(stream), asked_{Asked(stream), Asked(stream)} {
  reserve(rows_max);
}

StagedBytes Sampler::bytes(std::int64_t rows_max) {
  const std::size_t staged = Staging::reserved_bytes(table_bytes(rows_max));
  return {
      .device = staged + out_bytes(rows_max) + parts_bytes(rows_max) + candidates_bytes(rows_max),
      .pinned = 2 * (staged + Staging::reserved_bytes(out_bytes(rows_max)))};
}

void Sampler::reserve(std::int64_t rows) {
  if (rows <= rows_max_) return;
  stream_.wait();
  staging_.reserve(table_bytes(rows));
  for (Asked& asked : asked_) asked.readback.reserve(out_bytes(rows));
  out_ = make_device(out_bytes(rows));
  parts_ = make_device(parts_bytes(rows));
  candidates_ = make_device(candidates_bytes(rows));
  check(cudaMemsetAsync(parts_.get(), 0, parts_bytes(rows), stream_.handle()), "cudaMemsetAsync");
  rows_max_ = rows;
}

TokenAdjustment& Sampler::adjustment_of(TokenId token) {
  std::int32_t& place = place_of_[static_cast<std::size_t>(index(token))];
  if (place < 0) {
    place = static_cast<std::int32_t>(adjustments_.size() - row_begin_);
    adjustments_.push_back({.token = index(token)});
    generated_.push_back(0);
  }
  return adjustments_[row_begin_ + static_cast<std::size_t>(place)];
}

void Sampler::add_penalties(const SampleRow& row) {
  for (const TokenId token : row.history) adjustment_of(token).is_penalized = true;
  for (const TokenId token : row.history.subspan(static_cast<std::size_t>(row.prompt_tokens))) {
    ++generated_[static_cast<std::size_t>(place_of_[static_cast<std::size_t>(index(token))])];
  }
  for (std::size_t i = 0; i < generated_.size(); ++i) {
    if (generated_[i] == 0) continue;
    adjustments_[row_begin_ + i].penalty =
        row.params->frequency_penalty * static_cast<float>(generated_[i]) +
        row.params->presence_penalty;
  }
}

void Sampler::add(const SampleRow& row) {
  const SamplingParams& params = *row.params;
  row_begin_ = adjustments_.size();
  generated_.clear();
  if (has_penalties(params)) add_penalties(row);
  for (const LogitBias& bias : params.bias) adjustment_of(bias.token).bias = bias.bias;
  for (const TokenId token : params.banned) adjustment_of(token).is_banned = true;
  for (std::size_t i = row_begin_; i < adjustments_.size(); ++i) {
    place_of_[static_cast<std::size_t>(adjustments_[i].token)] = -1;
  }
  wants_logprobs_ = wants_logprobs_ || params.logprobs >= 0;
  jobs_.push_back({.by = params,
                   .adjustments = static_cast<std::int32_t>(adjustments_.size() - row_begin_),
                   .adjustment = nullptr,
                   .saved = nullptr,
                   .draw = uniform_draw(params.seed, row.draw),
                   .mask = nullptr,
                   .is_wanted = true});
}

/// After the jobs, which need their addresses.
void Sampler::stage_adjustments() {
  const TokenAdjustment* adjustment =
      stage_table(staging_, std::span<const TokenAdjustment>(adjustments_));
  float* saved = staging_.take<float>(std::ssize(adjustments_)).device;
  for (SampleJob& job : jobs_) {
    job.adjustment = adjustment;
    job.saved = saved;
    adjustment += job.adjustments;
    saved += job.adjustments;
  }
}

void Sampler::stage_masks(std::span<const SampleRow> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].mask.empty()) jobs_[i].mask = stage_table(staging_, rows[i].mask);
  }
}

void Sampler::stage(std::span<const SampleRow> rows, std::int64_t count, std::int32_t vocab_used) {
  check_rows(rows, vocab_used);
  require(std::ssize(rows) <= count && count <= rows_max_, "sampler: a round of at most rows_max");
  jobs_.clear();
  adjustments_.clear();
  wants_logprobs_ = false;
  place_of_.resize(std::max(place_of_.size(), static_cast<std::size_t>(vocab_used)), -1);
  for (const SampleRow& row : rows) add(row);
  rows_ = std::ssize(rows);
  count_ = count;
  vocab_used_ = vocab_used;

  staging_.clear();
  const Staged<SampleJob> place = staging_.take<SampleJob>(count);
  if (!adjustments_.empty()) stage_adjustments();
  stage_masks(rows);
  const auto end = std::copy(jobs_.begin(), jobs_.end(), place.host.begin());
  std::fill(end, place.host.end(), SampleJob{});
  staged_ = place.device;
  staging_.upload();
}

void Sampler::draw(const Tensor& logits, std::int32_t vocab_used, const Tensor& tokens) {
  require(vocab_used == vocab_used_ && logits.dtype == DType::f32 && logits.dim(0) == count_ &&
              logits.dim(1) >= vocab_used,
          "sampler: logits for the rows that were staged");
  require(tokens.empty() || (tokens.dtype == DType::i32 && tokens.dim(0) == count_),
          "sampler: a table of tokens for all rows");
  launch_sample(stream_, logits, vocab_used,
                {.jobs = staged_,
                 .out = reinterpret_cast<SampledToken*>(out_.get()),
                 .parts = reinterpret_cast<SampleParts*>(parts_.get()),
                 .candidates = reinterpret_cast<SampleCandidate*>(candidates_.get()),
                 .tokens = tokens.as<std::int32_t>()});
}

void Sampler::ask(const Tensor& tokens) {
  require(asks_ - answered_ < asked_.size(), "sampler: answers to two rounds at most");
  Asked& asked = asked_[asks_ % asked_.size()];
  asked.readback.clear();
  asked.whole = {};
  asked.ids = {};
  if (wants_logprobs_ || tokens.empty()) {
    asked.whole = asked.readback.copy(reinterpret_cast<const SampledToken*>(out_.get()), rows_);
  } else {
    asked.ids = asked.readback.copy(tokens.as<std::int32_t>(), rows_);
  }
  asked.readback.mark();
  ++asks_;
}

std::span<const SampledToken> Sampler::answers() {
  require(answered_ < asks_, "sampler: answers to a round that was requested");
  Asked& asked = asked_[answered_++ % asked_.size()];
  asked.readback.wait();
  check(cudaGetLastError(), "sample");
  if (!asked.whole.empty()) return asked.whole;
  answers_.clear();
  for (const std::int32_t id : asked.ids) {
    answers_.push_back({.token = TokenId{id}, .finite = id >= 0});
  }
  return answers_;
}

void Sampler::sample(const Sample& op) {
  reserve(std::ssize(op.rows));
  stage(op.rows, std::ssize(op.rows), op.vocab_used);
  draw(op.logits, op.vocab_used, {});
  ask({});
  const std::span<const SampledToken> drawn = answers();
  std::copy(drawn.begin(), drawn.end(), op.out.begin());
}

std::unique_ptr<DeviceSampler> make_device_sampler(Stream& stream, std::int64_t rows_max) {
  return std::make_unique<Sampler>(stream, rows_max);
}

StagedBytes device_sampler_bytes(std::int64_t rows_max) { return Sampler::bytes(rows_max); }

}  // namespace hyb::kernels::cuda
