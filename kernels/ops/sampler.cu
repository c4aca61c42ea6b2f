#include "kernels/ops/sampler.h"

#include <algorithm>

#include "kernels/cuda/check.h"
#include "kernels/ops/philox.h"
#include "kernels/ops/sample_adjust.h"

namespace hyb::kernels::cuda {
namespace {

template <typename T>
T* stage(Staging& staging, const std::vector<T>& values) {
  const Staged<T> place = staging.take<T>(std::ssize(values));
  std::copy(values.begin(), values.end(), place.host.begin());
  return place.device;
}

}  // namespace

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
        row.frequency_penalty * static_cast<float>(generated_[i]) + row.presence_penalty;
  }
}

/// A token's biases stand one behind the other, in the order of the row.
void Sampler::add_biases(const SampleRow& row) {
  for (const LogitBias& bias : row.bias) ++adjustment_of(bias.token).biases;
  auto end = static_cast<std::int32_t>(biases_.size());
  for (std::size_t i = row_begin_; i < adjustments_.size(); ++i) {
    adjustments_[i].first_bias = end;
    end += adjustments_[i].biases;
    adjustments_[i].biases = 0;
  }
  biases_.resize(static_cast<std::size_t>(end));
  for (const LogitBias& bias : row.bias) {
    TokenAdjustment& own = adjustment_of(bias.token);
    biases_[static_cast<std::size_t>(own.first_bias + own.biases++)] = bias.bias;
  }
}

void Sampler::add(const SampleRow& row) {
  row_begin_ = adjustments_.size();
  generated_.clear();
  if (has_penalties(row)) add_penalties(row);
  add_biases(row);
  for (const TokenId token : row.banned) adjustment_of(token).is_banned = true;
  for (std::size_t i = row_begin_; i < adjustments_.size(); ++i) {
    place_of_[static_cast<std::size_t>(adjustments_[i].token)] = -1;
  }
  jobs_.push_back({.temperature = row.temperature,
                   .inverse_temperature = 1.0F / row.temperature,
                   .top_p = row.top_p,
                   .min_p = row.min_p,
                   .repetition_penalty = row.repetition_penalty,
                   .top_k = row.top_k,
                   .logprobs = row.logprobs,
                   .first_adjustment = static_cast<std::int32_t>(row_begin_),
                   .adjustments = static_cast<std::int32_t>(adjustments_.size() - row_begin_),
                   .draw = uniform_draw(row.seed, row.draw)});
}

void Sampler::sample(const Sample& op) {
  jobs_.clear();
  adjustments_.clear();
  biases_.clear();
  place_of_.resize(std::max(place_of_.size(), static_cast<std::size_t>(op.vocab_used)), -1);
  for (const SampleRow& row : op.rows) add(row);

  staging_.clear();
  const SampleTables tables = {.jobs = stage(staging_, jobs_),
                               .adjustments = stage(staging_, adjustments_),
                               .biases = stage(staging_, biases_),
                               .saved = staging_.take<float>(std::ssize(adjustments_)).device,
                               .out = staging_.take<SampledToken>(std::ssize(jobs_)).device};
  staging_.upload();
  launch_sample(stream_, op, tables);
  readback_.clear();
  const auto answers = readback_.copy(tables.out, std::ssize(jobs_));
  readback_.wait();
  check(cudaGetLastError(), "sample");
  std::copy(answers.begin(), answers.end(), op.out.begin());
}

}  // namespace hyb::kernels::cuda
