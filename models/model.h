#pragma once

#include <cstdint>
#include <optional>

#include "core/io/tensor_files.h"
#include "kernels/queue.h"
#include "models/config.h"
#include "models/families.h"
#include "models/geometry.h"
#include "models/plan.h"
#include "models/weights.h"

namespace hyb::models {

/// A model in memory, ready for a ModelRunner. Move it only before one is made.
struct Model {
  Plan plan;
  Geometry geometry;
  Weights weights;
};

/// The type of activations: `wanted`, else bf16 for bf16 weights and f32 for all others, of which
/// F16 ones stay F16 in memory (bf16 cannot represent f16 numbers).
DType activation_dtype(const Plan& plan, std::optional<DType> wanted);

/// Loads the files of a model. They may be closed afterwards: every weight was packed. Tensors that
/// neither the plan nor the family knows are a warning. Throws Error(model) for what WeightIndex
/// refuses.
Model load_model(kernels::Queue& queue, const Config& config, TensorFiles& files,
                 const GeometryOptions& options, const MakeRoom& make_room = {});

/// The same with synthetic weights.
Model random_model(kernels::Queue& queue, const Config& config, std::uint64_t seed,
                   const GeometryOptions& options, const MakeRoom& make_room = {});

/// sample_lossless (weights.h) of a model's files. Throws Error(model) for what WeightIndex
/// refuses.
std::vector<LosslessMatrix> sample_lossless(const Config& config, TensorFiles& files,
                                            const LoadOptions& options);

}  // namespace hyb::models
