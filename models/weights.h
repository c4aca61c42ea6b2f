#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/linear/bits12.h"
#include "kernels/queue.h"
#include "kernels/weight.h"
#include "models/geometry.h"
#include "models/plan.h"
#include "models/published_formats.h"
#include "models/weight_index.h"

namespace hyb::models {

class MatrixRows;
class WeightVisitor;

/// The source of a model's numbers: its files, or a generator.
class WeightProvider {
 public:
  virtual ~WeightProvider() = default;

  /// Says whether a weight with several layouts is stored in this one.
  virtual bool has(const WeightKey& key) const = 0;

  /// The bytes of [experts, rows, columns], or transposed [experts, columns, rows], valid until
  /// release(key).
  virtual kernels::WeightSource matrix(const WeightKey& key, std::int64_t experts,
                                       std::int64_t rows, std::int64_t columns,
                                       bool transposed) = 0;

  /// `count` numbers as f32.
  virtual std::vector<float> vector(const WeightKey& key, std::int64_t count) = 0;

  /// The bytes of the key were copied: their memory may be released.
  virtual void release(const WeightKey& key) = 0;
};

/// Published files, mapped. The index checked names, shapes and types before.
class FileWeights : public WeightProvider {
 public:
  explicit FileWeights(const WeightIndex& index) : index_(index) {}

  bool has(const WeightKey& key) const override { return index_.has(key); }
  kernels::WeightSource matrix(const WeightKey& key, std::int64_t experts, std::int64_t rows,
                               std::int64_t columns, bool transposed) override;
  std::vector<float> vector(const WeightKey& key, std::int64_t count) override;
  void release(const WeightKey& key) override;

 private:
  const WeightIndex& index_;
  std::map<WeightKey, std::vector<std::byte>> made_;  ///< of read_groups, until released
};

/// Synthetic weights of bf16 or f16, or as a quantised model is published, from a seed, for speed
/// measurements without a download. Matrices are nearly normal with variance 1/columns, so that
/// their exponents are spread as trained ones are, and in codes they are the same numbers to the
/// nearest level; norms are near 1; decay and time step lie where trained models have them.
/// Activations neither explode nor vanish; answers mean nothing. Matrices are made where they are
/// packed: by all threads, or on the card itself.
class RandomWeights : public WeightProvider {
 public:
  explicit RandomWeights(std::uint64_t seed, DType dtype = DType::bf16, PublishedTypes types = {})
      : seed_(seed), dtype_(dtype), types_(std::move(types)) {}

  /// Every matrix is there in any layout; of a quantised model in the one that it is published in.
  bool has(const WeightKey& key) const override {
    return types_.empty() || key.role.kind() == RoleKind::log_decay ||
           types_.contains({key.role, key.layer});
  }
  kernels::WeightSource matrix(const WeightKey& key, std::int64_t experts, std::int64_t rows,
                               std::int64_t columns, bool transposed) override;
  std::vector<float> vector(const WeightKey& key, std::int64_t count) override;
  void release(const WeightKey&) override {}

 private:
  std::uint64_t seed_;
  DType dtype_;
  PublishedTypes types_;
};

struct BlockWeights {
  kernels::Tensor norm;
  kernels::Tensor post_norm, factor;                         ///< as Block says
  std::vector<kernels::Tensor> part_norms, part_post_norms;  ///< with norms_parts
  std::vector<PartWeights> parts;                            ///< as Block::parts
  kernels::Weight left, right;                               ///< as Block::low_rank
  kernels::Tensor low_rank_norm;
};

/// A layer's weights of Plan::altup.
struct AltUpWeights {
  kernels::Tensor router_norm, scale;
  kernels::Weight router;                  ///< [n,H]
  kernels::Tensor prediction, correction;  ///< [n*n,n] and [n,n]
};

struct LayerWeights {
  std::vector<BlockWeights> blocks;  ///< as Layer::blocks
  AltUpWeights altup = {};
};

/// Weights of a DraftLayer.
struct DraftWeights {
  kernels::Tensor embedding_norm, hidden_norm;
  kernels::Weight fc;  ///< columns of the embedding | of the hidden; of a head those of the taps
  std::vector<LayerWeights> layers;
  kernels::Tensor norm;
  kernels::Weight head;  ///< of an EAGLE-3 head, or LoadOptions::draft_head_q4; empty: the model's
  kernels::Tensor columns;  ///< i32 [vocab], as eagle3_columns
};

/// All weights of a model, packed for the routes of the queue. Small tensors are f32 views into
/// `vectors`; an absent one is empty. Move-only.
struct Weights {
  kernels::Weight embed;
  std::optional<kernels::Weight> head;  ///< none: tied, the embedding serves
  kernels::Tensor final_norm;
  std::vector<LayerWeights> layers;
  kernels::Weight inputs_embed, inputs_projection;  ///< as Plan::layer_inputs
  kernels::Tensor inputs_norm;
  /// Weights of Plan::altup, of all streams but the first.
  std::vector<kernels::Weight> stream_projections, stream_outputs;
  std::optional<DraftWeights> draft;          ///< as Plan::draft
  std::vector<kernels::Buffer> vectors;       ///< of the small tensors, on the queue's device
  std::size_t packed_bytes = 0;               ///< what packing copied, padding included
  std::int64_t ordered_columns = 0;           ///< as PackedBlocks has it
  std::array<std::int64_t, 8> matrices = {};  ///< how many are stored by each WeightCode

  /// All memory that they take of the queue's device.
  std::size_t bytes() const;

  const kernels::Weight& output() const { return head ? *head : embed; }
};

/// Choice of a plan's weights: a head is in files of its own.
enum class WeightsOf : std::uint8_t { all, model, head };

/// Shows a visitor every weight of a plan, layer after layer; what it hands out.
Weights visit_weights(const Plan& plan, WeightVisitor& visitor, WeightsOf of = WeightsOf::all);

/// Called when the device has no memory left for a weight: frees some, and the weight is tried once
/// more. False: there is nothing to free.
using MakeRoom = std::function<bool()>;

/// Is shown every weight of a model once it is packed. Its bytes stay where they are.
using PackedCall =
    std::function<void(const kernels::Weight& weight, std::int32_t layer, const MatrixRows& rows)>;

/// Loading calls these meanwhile; each may be empty.
struct LoadCalls {
  MakeRoom make_room = {};
  std::function<void(std::size_t bytes)> loaded = {};  ///< all matrices so far take these bytes
  PackedCall packed = {};
};

/// Reads every weight the plan needs, packs it, and releases the source pages one by one. Where
/// activations are f32, F16 stays F16; matrices that are rounded to bf16 are counted in one line of
/// the log. Throws Error(memory), with the numbers, where the device has too little.
Weights load_weights(kernels::Queue& queue, const Plan& plan, WeightProvider& provider,
                     const LoadOptions& options, const LoadCalls& calls = {});

/// LoadOptions::lossless would make this of a matrix, by some of its panels.
struct LosslessMatrix {
  std::int32_t layer;  ///< -1: of the whole model
  Role role;           ///< of the first tensor that it is made of, as the files have it
  std::int64_t experts, rows, columns;
  kernels::Bits12Sample sample;
};

/// Samples every matrix that would take 12 bits; reads a few panels of each.
std::vector<LosslessMatrix> sample_lossless(const Plan& plan, WeightProvider& provider,
                                            const LoadOptions& options);

/// Bytes of a matrix more than packed_bytes counts for it: it stays bf16, or has patches.
std::size_t bytes_above_12_bits(const LosslessMatrix& matrix);

/// Bytes of the small tensors of a plan.
std::size_t vector_bytes(const Plan& plan);

/// Bytes of the matrices that load_weights makes, from the plan alone. Where F16 is mixed with
/// other types it is an estimate; with lossless, too, of matrices that all take 12 bits and have no
/// patches; with fp8_parameters, mxfp4_parameters or blocks, too, but for the padding of panels and
/// what stacks of FP8 and other types lose.
std::size_t packed_bytes(const Plan& plan, kernels::Device device, const LoadOptions& options);

}  // namespace hyb::models
