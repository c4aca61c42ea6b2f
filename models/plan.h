#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "models/parts/parts.h"

namespace hyb::models {

/// h += sum over parts of output_scale * part(norm(h)). All parts read the same norm(h); their
/// outputs are added in the order of `parts`, each rounded to the type of h.
struct Block {
  Norm norm = Norm::rms;
  std::vector<Part> parts;
};

struct Layer {
  std::vector<Block> blocks;
};

/// What config.json says of a model in words that all families share: values only, no tensors, no
/// device. State and KV bytes, the list of tensors, `hyb inspect` and `hyb fit` derive from it
/// without knowing the family.
struct Plan {
  std::string family;  ///< model_type
  std::int32_t vocab;  ///< rows of the embedding
  std::int32_t width;  ///< H
  float norm_eps;
  Norm final_norm = Norm::rms;
  float embedding_scale = 1.0F;
  float logits_scale = 1.0F;  ///< factor on the logits
  bool tied_head = false;
  DType weight_dtype = DType::bf16;  ///< what config.json says the weights are
  DType state_dtype = DType::f32;    ///< of the recurrent matrices
  std::int32_t positions_max = 0;    ///< max_position_embeddings; 0: not stated
  std::vector<Layer> layers;

  /// visit(part) of every part, in order.
  template <typename Visit>
  void visit_parts(const Visit& visit) const {
    for (const Layer& layer : layers) {
      for (const Block& block : layer.blocks) {
        for (const Part& part : block.parts) std::visit(visit, part);
      }
    }
  }

  /// Whether positions past positions_max degrade.
  bool has_rope() const {
    bool found = false;
    visit_parts([&](const auto& part) {
      if constexpr (requires { part.rope; }) found |= part.rope.has_value();
    });
    return found;
  }
  bool has_experts() const {
    bool found = false;
    visit_parts([&](const auto& part) { found |= part.work().experts > 0; });
    return found;
  }
};

}  // namespace hyb::models
