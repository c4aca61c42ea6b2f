#pragma once

#include <cstdint>
#include <vector>

#include "kernels/weight.h"
#include "models/weight_index.h"

namespace hyb::models {

/// Where the numbers of a model come from: its files, or a generator.
class WeightProvider {
 public:
  virtual ~WeightProvider() = default;

  /// Whether a weight that is stored in one of several layouts is there in this one.
  virtual bool has(const WeightKey& key) const = 0;

  /// The bytes of [experts, rows, columns], valid until release(key).
  virtual kernels::WeightSource matrix(const WeightKey& key, std::int64_t experts,
                                       std::int64_t rows, std::int64_t columns) = 0;

  /// `count` numbers as f32.
  virtual std::vector<float> vector(const WeightKey& key, std::int64_t count) = 0;

  /// The bytes handed out for the key were copied: their memory may go.
  virtual void release(const WeightKey& key) = 0;
};

/// Published files, mapped. The index checked names, shapes and types before.
class FileWeights : public WeightProvider {
 public:
  explicit FileWeights(const WeightIndex& index) : index_(index) {}

  bool has(const WeightKey& key) const override { return index_.has(key); }
  kernels::WeightSource matrix(const WeightKey& key, std::int64_t experts, std::int64_t rows,
                               std::int64_t columns) override;
  std::vector<float> vector(const WeightKey& key, std::int64_t count) override;
  void release(const WeightKey& key) override { index_.drop(key); }

 private:
  const WeightIndex& index_;
};

/// Synthetic bf16 weights from a seed, for speed measurements without a download. Matrices are
/// uniform with variance 1/columns; norms are near 1; decay and time step lie where trained models
/// have them. Activations neither explode nor vanish, answers mean nothing. Matrices are made where
/// they are packed: plain ones on the card itself.
class RandomWeights : public WeightProvider {
 public:
  explicit RandomWeights(std::uint64_t seed) : seed_(seed) {}

  /// Every matrix comes in any layout.
  bool has(const WeightKey&) const override { return true; }
  kernels::WeightSource matrix(const WeightKey& key, std::int64_t experts, std::int64_t rows,
                               std::int64_t columns) override;
  std::vector<float> vector(const WeightKey& key, std::int64_t count) override;
  void release(const WeightKey&) override {}

 private:
  std::uint64_t seed_;
};

}  // namespace hyb::models
