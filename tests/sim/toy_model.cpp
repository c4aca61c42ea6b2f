#include "tests/sim/toy_model.h"

namespace hyb::sim {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t h = (a ^ (b + 0x9e3779b97f4a7c15ULL)) * 0xff51afd7ed558ccdULL;
  h ^= h >> 32;
  h *= 0xc4ceb9fe1a85ec53ULL;
  return h ^ (h >> 29);
}

std::uint64_t advance(std::uint64_t recurrent, TokenId token, std::uint64_t attended) {
  return mix(mix(recurrent, static_cast<std::uint64_t>(index(token)) + 1), attended);
}

std::uint64_t make_key(TokenId token, std::uint64_t attended, std::uint64_t recurrent) {
  return mix(mix(attended, static_cast<std::uint64_t>(index(token)) + 11), recurrent);
}

SampledToken draw(const ToyModel& model, std::uint64_t output, const SamplingParams& params,
                  std::uint64_t count) {
  std::uint64_t number = mix(output, 5);
  if (params.temperature > 0.0F) number = mix(mix(number, params.seed), count);
  SampledToken sampled;
  sampled.token = TokenId{static_cast<std::int32_t>(number % static_cast<unsigned>(model.vocab))};
  sampled.finite =
      model.nan_every == 0 || mix(output, 6) % static_cast<unsigned>(model.nan_every) != 0;
  sampled.logprob = -static_cast<float>(output % 1024);
  for (std::int32_t i = 0; i < params.logprobs; ++i) {
    sampled.top.push_back({TokenId{i}, -static_cast<float>(mix(output, 7) % 1024)});
  }
  return sampled;
}

void add_logits(std::uint64_t output, std::int32_t vocab, std::vector<float>& logits) {
  for (std::int32_t i = 0; i < vocab; ++i) {
    logits.push_back(i < 4 ? static_cast<float>(output >> (16 * i) & 0xFFFF) : 0.0F);
  }
}

std::uint64_t output_in(std::span<const float> logits) {
  std::uint64_t output = 0;
  for (std::size_t i = 0; i < 4; ++i) output |= static_cast<std::uint64_t>(logits[i]) << (16 * i);
  return output;
}

void NaiveToy::push(TokenId token) {
  const auto position = static_cast<std::int32_t>(keys_.size());
  const auto key = [&](std::int32_t i) { return keys_[static_cast<std::size_t>(i)]; };
  const std::uint64_t attended = model_.attention ? attend(position, key) : 0;
  if (model_.recurrence) recurrent_ = advance(recurrent_, token, attended);
  keys_.push_back(make_key(token, attended, recurrent_));
}

std::uint64_t NaiveToy::output() const {
  const auto key = [&](std::int32_t i) { return keys_[static_cast<std::size_t>(i)]; };
  return output_of(model_, static_cast<std::int32_t>(keys_.size()), recurrent_, key);
}

}  // namespace hyb::sim
