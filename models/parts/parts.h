#pragma once

#include <concepts>
#include <cstddef>
#include <variant>

#include "models/parts/attention.h"
#include "models/parts/delta_net.h"
#include "models/parts/layer_input.h"
#include "models/parts/lightning.h"
#include "models/parts/mla.h"
#include "models/parts/mlp.h"
#include "models/parts/moe.h"
#include "models/parts/s6.h"
#include "models/parts/shared_transformer.h"
#include "models/parts/short_conv.h"
#include "models/parts/ssd.h"

namespace hyb::models {

/// A part states this of itself, in a file of its own: everything else goes by these.
template <typename T>
concept IsPart = requires(const T& part, WeightVisitor& visitor, const typename T::Weights& weights,
                          const StepSetting& setting, const PartMemory& memory,
                          const PartCall& call) {
  { part.output_scale } -> std::convertible_to<float>;  ///< factor on what it adds to the stream
  { part.weights(visitor, std::int64_t{}) } -> std::same_as<typename T::Weights>;
  { part.memory() } -> std::same_as<MemoryShape>;
  { part.work() } -> std::same_as<PartWork>;
  { part.text() } -> std::same_as<PartText>;
  { part.scratch_bytes(setting) } -> std::same_as<std::size_t>;    ///< of what run() takes
  { part.workspace_bytes(setting) } -> std::same_as<std::size_t>;  ///< of PartMemory::workspace
  part.run(weights, memory, call);
};

template <IsPart... Parts>
struct PartList {
  using Part = std::variant<Parts...>;
  using Weights = std::variant<typename Parts::Weights...>;
};

/// All parts there are.
using AllParts = PartList<Attention, Mla, Ssd, DeltaNet, ShortConv, Lightning, Mlp, Moe, LayerInput,
                          S6, SharedTransformer>;

using Part = AllParts::Part;
using PartWeights = AllParts::Weights;  ///< of the same index

}  // namespace hyb::models
