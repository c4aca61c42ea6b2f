#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "kernels/queue.h"
#include "kernels/weight.h"
#include "models/load_options.h"
#include "models/plan.h"
#include "models/weight_provider.h"

namespace hyb::models {

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

}  // namespace hyb::models
