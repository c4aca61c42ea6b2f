#pragma once

#include <cstdint>
#include <optional>

#include "core/io/tensor_files.h"
#include "kernels/queue.h"
#include "models/config.h"
#include "models/drafting/head.h"
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

/// Describes a model, with the head that drafts for it, or without one as plan_of.
Plan plan_with_head(const Config& config, const Config* head, bool with_drafts);

/// Loads the files of a model, and those of the head that drafts for it where there is one. They
/// may be closed afterwards: every weight was packed. Tensors of the model that neither the plan
/// nor the family knows are a warning. Throws Error(model) for what WeightIndex refuses, and of a
/// head for what head_of and eagle3_columns refuse, for tensors that are not known, and for an
/// embedding that is not the model's.
Model load_model(kernels::Queue& queue, const Config& config, TensorFiles& files,
                 const GeometryOptions& options, const LoadCalls& calls = {},
                 HeadFolder* head = nullptr);

/// The same with synthetic weights; the head's config.json alone is read.
Model random_model(kernels::Queue& queue, const Config& config, std::uint64_t seed,
                   const GeometryOptions& options, const LoadCalls& calls = {},
                   const HeadFolder* head = nullptr);

/// sample_lossless (weights.h) of a model's files. Throws Error(model) for what WeightIndex
/// refuses.
std::vector<LosslessMatrix> sample_lossless(const Config& config, TensorFiles& files,
                                            const LoadOptions& options);

}  // namespace hyb::models
