#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/queue.h"
#include "kernels/weight.h"
#include "models/geometry.h"
#include "models/plan.h"
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

/// The weights of one part. Matrices are [out, in] with their rows in the order stated here, which
/// is not always the stored one (families.h). Small tensors are f32 views into Weights::vectors; an
/// absent one is empty.
struct AttentionWeights {
  kernels::Weight qkv, o;          ///< qkv: rows q | k | v, and with an output gate | gate
  kernels::Tensor q_norm, k_norm;  ///< [head_dim]
};

struct SsdWeights {
  kernels::Weight in_proj, out_proj;
  kernels::Tensor conv_weight, conv_bias, a_log, d, dt_bias, norm;
};

struct DeltaNetWeights {
  kernels::Weight qkvz, ba, out_proj;  ///< rows q | k | v | z of all heads; b | a
  kernels::Tensor conv_weight, a_log, dt_bias;
  kernels::Tensor norm;  ///< [values], the same for every head
};

struct ShortConvWeights {
  kernels::Weight in_proj, out_proj;
  kernels::Tensor conv_weight;
};

struct MlpWeights {
  kernels::Weight gate_up, down;  ///< gate_up: rows gate | up, or up alone
};

struct MoeWeights {
  kernels::Weight router, gate_up, down;
  kernels::Tensor correction_bias;
  kernels::Weight latent_in, latent_out;  ///< empty without a latent width
  MlpWeights shared;                      ///< empty without a shared expert
  kernels::Weight shared_gate;            ///< [1,H], or empty
};

using PartWeights = std::variant<AttentionWeights, SsdWeights, DeltaNetWeights, ShortConvWeights,
                                 MlpWeights, MoeWeights>;

struct BlockWeights {
  kernels::Tensor norm;
  std::vector<PartWeights> parts;  ///< as Block::parts
};

struct LayerWeights {
  std::vector<BlockWeights> blocks;  ///< as Layer::blocks
};

/// All weights of a model, packed for the routes of the queue. Move-only.
struct Weights {
  kernels::Weight embed;
  std::optional<kernels::Weight> head;  ///< none: tied, the embedding serves
  kernels::Tensor final_norm;
  std::vector<LayerWeights> layers;
  std::vector<kernels::Buffer> vectors;  ///< of the small tensors, on the queue's device
  std::size_t packed_bytes = 0;          ///< what packing copied, padding included

  /// All that they hold of the queue's device.
  std::size_t bytes() const;

  const kernels::Weight& output() const { return head ? *head : embed; }
};

/// Asked when the device refuses memory for a weight: gives some back, and the weight is asked for
/// once more. False: there is nothing to give.
using MakeRoom = std::function<bool()>;

/// Reads every weight the plan needs, packs it, and gives the source pages back one by one. Throws
/// Error(memory), with the numbers, where the device has too little.
Weights load_weights(kernels::Queue& queue, const Plan& plan, WeightProvider& provider,
                     const LoadOptions& options, const MakeRoom& make_room = {});

/// What the small tensors of a plan take.
std::size_t vector_bytes(const Plan& plan);

/// What the matrices that load_weights makes will hold, from the plan alone. With fp8_parameters it
/// is an estimate, but for the padding of panels and what stacks of FP8 and other types lose.
std::size_t packed_bytes(const Plan& plan, kernels::Device device, const LoadOptions& options);

/// Reads the stored tensors of one layer after the other, or the model-wide ones (layer -1), brings
/// their rows into the order in which parts read them, and packs them.
class WeightLoader {
 public:
  /// All outlive the loader; `weights` takes the small tensors and counts the packed bytes.
  WeightLoader(kernels::Queue& queue, WeightProvider& provider, const LoadOptions& options,
               Weights& weights, const MakeRoom& make_room)
      : queue_(queue),
        provider_(provider),
        options_(options),
        weights_(weights),
        make_room_(make_room) {}

  void set_layer(std::int32_t layer) { layer_ = layer; }
  DType activation() const { return options_.activation; }

  /// Whether the files have a weight that can be absent or stored otherwise.
  bool has(std::string_view role) const;

  /// A stored matrix, to take rows from; valid until the next pack().
  kernels::WeightSource stored(std::string_view role, std::int64_t rows, std::int64_t columns,
                               std::int64_t experts = 1, std::int32_t expert = -1);

  /// Packs rows of what was stored() since the last call, and gives the memory of those back.
  /// Quantised as the options ask, or as told.
  kernels::Weight pack(const kernels::WeightSource& source);
  kernels::Weight pack(const kernels::WeightSource& source, DType dtype,
                       kernels::Quantize quantize = kernels::Quantize::none);

  /// A stored matrix as it is.
  kernels::Weight matrix(std::string_view role, std::int64_t rows, std::int64_t columns,
                         std::int64_t experts = 1);
  /// The same of one that is not quantised with the others.
  kernels::Weight matrix_as(kernels::Quantize quantize, std::string_view role, std::int64_t rows,
                            std::int64_t columns);

  /// Stored matrices below each other, as one: role and rows of each.
  kernels::Weight stacked(std::initializer_list<std::pair<std::string_view, std::int64_t>> parts,
                          std::int64_t columns);
  kernels::WeightSource stacked_source(
      std::initializer_list<std::pair<std::string_view, std::int64_t>> parts, std::int64_t columns);

  /// A small tensor as f32 on the queue's device: [rows], or [rows, columns].
  kernels::Tensor vector(std::string_view role, std::int64_t rows, std::int64_t columns = 0);

  /// The same `times` times behind each other, [times * rows].
  kernels::Tensor repeated(std::string_view role, std::int64_t rows, std::int64_t times);

 private:
  float* upload(const std::vector<float>& values);
  template <typename Make>
  auto with_room(const Make& make) const;

  kernels::Queue& queue_;
  WeightProvider& provider_;
  const LoadOptions& options_;
  Weights& weights_;
  const MakeRoom& make_room_;
  std::int32_t layer_ = -1;
  std::vector<std::pair<std::string, std::int32_t>> read_;  // role and expert, since pack()
};

}  // namespace hyb::models
