#include "app/quantize/input_moments.h"

#include <algorithm>
#include <numeric>

#include "models/parts/weight_visitor.h"

namespace hyb::app {
namespace {

constexpr double always = 0.01;  ///< of the mean
constexpr std::int64_t columns_of_run = 64;

}  // namespace

models::PackedCall InputMoments::packed_call() {
  return [this](const kernels::Weight& weight, std::int32_t layer, const models::MatrixRows& rows) {
    const std::byte* const bytes = weight.expert(0);
    by_weight_[bytes].squares.resize(static_cast<std::size_t>(weight.experts()));
    for (const auto& [role, expert] : rows.stored()) weight_of_[{role, layer, expert}] = bytes;
  };
}

void InputMoments::see(kernels::Queue& queue, const Inputs& inputs) {
  const auto found = by_weight_.find(inputs.weight.expert(0));
  if (found == by_weight_.end()) return;
  std::vector<double>& squares = found->second.squares.at(static_cast<std::size_t>(inputs.expert));
  squares.resize(static_cast<std::size_t>(inputs.weight.columns()));
  queue.share(inputs.weight.columns(), columns_of_run,
              [&](std::int64_t begin, std::int64_t end, int) {
                for (std::int64_t row = 0; row < inputs.rows; ++row) {
                  const std::byte* const bytes = inputs.row(row);
                  for (std::int64_t k = begin; k < end; ++k) {
                    const double x = kernels::published_value(bytes, inputs.dtype, k);
                    squares[static_cast<std::size_t>(k)] += x * x;
                  }
                }
              });
}

std::vector<float> InputMoments::importance(const models::WeightKey& key,
                                            std::int64_t columns) const {
  std::vector<float> all(static_cast<std::size_t>(columns), 1.0F);
  const auto weight = weight_of_.find(key);
  if (weight == weight_of_.end()) return all;
  const auto& experts = by_weight_.at(weight->second).squares;
  // The index may be of a use of what layers share, and not of an expert.
  const bool has_experts = experts.size() > 1 && key.expert >= 0;
  const auto& squares = experts.at(has_experts ? static_cast<std::size_t>(key.expert) : 0);
  const double mean =
      std::accumulate(squares.begin(), squares.end(), 0.0) / static_cast<double>(columns);
  if (squares.size() != all.size() || !(mean > 0)) return all;
  std::transform(squares.begin(), squares.end(), all.begin(),
                 [&](double sum) { return static_cast<float>(sum / mean + always); });
  return all;
}

}  // namespace hyb::app
