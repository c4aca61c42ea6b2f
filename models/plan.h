#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/base/dtype.h"
#include "models/parts/parts.h"

namespace hyb::models {

/// h += sum over parts of output_scale * part(norm(h)). All parts read the same norm(h); their
/// outputs are added in the order of `parts`, each rounded to the type of h. With a post norm
/// h += post_norm(that sum), and with a factor, one trained number, h *= factor afterwards. Where
/// parts have norms of their own, the sum is that of post_i(part_i(norm_i(h))), all rms.
///
/// With a carried norm, a factor, h = factor * norm(h) + the sum, the norm being rms.
///
/// With a low-rank residual (LAuReL), n being norm(h) and the norm here rms,
/// h = (h + n + norm(right * left * n)) * sqrt(1/2) after all that.
struct Block {
  Norm norm = Norm::rms;
  std::vector<Part> parts;
  std::optional<Norm> post_norm = {};
  bool has_factor = false;    ///< of a block with a post norm
  float carried_norm = 0.0F;  ///< of a block without a post norm; 0: none
  bool norms_parts = false;   ///< of a block with a post norm whose own norm is none
  std::int32_t low_rank = 0;  ///< inner width of the low-rank residual; 0: none
  /// True with Plan::altup for a layer's last block, which has a post norm and no norm: it reads
  /// the corrected active stream, scaled, and adds to all streams but the first.
  bool to_others = false;
  /// For two parts and no post norm: the first one's output, of h alone, is not added to the
  /// stream, but to what the norm and the second get: h += part(norm(h + first(h))).
  bool feeds_norm = false;

  bool operator==(const Block&) const = default;
};

struct Layer {
  std::vector<Block> blocks;

  /// visit(part) of every part, in order.
  template <typename Visit>
  void visit_parts(const Visit& visit) const {
    for (const Block& block : blocks) {
      for (const Part& part : block.parts) std::visit(visit, part);
    }
  }

  bool operator==(const Layer&) const = default;
};

/// A second embedding of every token, `width` numbers for each layer:
///   p = (embedding * sqrt(width) + rms(projection * e0 / sqrt(H))) / sqrt(2),
/// e0 being what the first layer gets, the norm over the numbers of a layer; the first root is
/// rounded to the type of the activations.
struct LayerInputs {
  std::int32_t vocab;  ///< rows of this embedding; tokens that have none take the first
  std::int32_t width;

  bool operator==(const LayerInputs&) const = default;
};

/// Several residual streams; kernels/ops/altup.h says how a layer predicts and corrects them, by a
/// router that is rms(h) * router / H of the active one. A layer's blocks run on that one, between
/// prediction and correction. The first stream begins as the embedding, every other one as its
/// projection with the embedding's magnitude. The final norm gets the mean of the first stream and
/// of the others' projections with the first one's magnitude.
struct AltUp {
  std::int32_t streams, active;
  bool scales_output;  ///< what the layer's last block reads is scaled by trained numbers, which
                       ///< are there in any case

  bool operator==(const AltUp&) const = default;
};

/// A draft layer that the checkpoint of a model has (multi-token prediction): the hidden state of a
/// position, after the final norm, and the token drawn there become the input of one more layer, in
/// some files of two, which says the token after that:
///
///   x = fc * [norm(embedding of the token) | norm(hidden of the position before it)]
///   hidden = norm(x after these layers)     logits = the model's head
///
/// A further draft has this hidden for the model's. That the model's is taken after its final norm
/// is how the servers run the checkpoints that have such layers: of Qwen's vLLM and llama.cpp,
/// whose acceptance rose by it, of Nemotron's vLLM, SGLang and NVIDIA's own TensorRT-LLM.
struct Mtp {
  static constexpr std::array<std::int32_t, 0> taps = {};
  bool operator==(const Mtp&) const = default;
};

/// A draft layer of the kind EAGLE-3, which has files, a head and mostly a vocabulary of its own.
/// With h_i what enters layer i of the model, at the position before the token:
///
///   f = fc * [h_a | h_b | h_c]
///   s = f + attention([norm(embedding of the token) | norm(f)])
///   s = s + feed-forward(norm(s))     logits = head * norm(s), all norms rms
///
/// A further draft has this s for f. The embedding is the model's, without its scale. The servers
/// have no entry for a sequence's first token; here it is made of zeros for f, as that of any other
/// draft layer is.
struct Eagle3 {
  std::vector<std::int32_t> taps;  ///< a, b and c
  std::int32_t vocab;              ///< rows of the head
  float norm_eps;
  bool adds_to_normed = false;  ///< s begins as norm(f)

  bool operator==(const Eagle3&) const = default;
};

/// Draft layers of the kind DFlash, which have files of their own and guess a whole block at once.
/// With h_i what enters layer i of the model, at a position that has run, its keys and values in
/// every draft layer are those of
///
///   f = norm(fc * [h_a | h_b | ...])
///
/// A block is the token that has not run and, at the positions after it, tokens of the kind `mask`;
/// through the layers go their embeddings, as the model has them, times embedding_scale. What the
/// last norm leaves at a mask says, by the model's head, the token there. Norms are rms.
struct Dflash {
  std::vector<std::int32_t> taps;  ///< a, b, ...
  std::int32_t block;              ///< tokens of a block as it was trained, at least 2
  std::int32_t mask;
  float norm_eps;
  float embedding_scale = 1.0F;
  float logits_scale = 1.0F;  ///< as in Plan, which does not count here
  float logits_cap = 0.0F;

  bool operator==(const Dflash&) const = default;
};

/// Drafts beside a model. drafting/draft_runner.h runs it, each kind in a file of its own.
struct DraftLayer {
  Norm norm = Norm::rms;           ///< of all three norms
  std::vector<Layer> layers = {};  ///< the first block is attention alone; of Dflash each one's
  std::variant<Mtp, Eagle3, Dflash> kind = Mtp{};

  /// Says whether it is published apart from its model, as a head.
  bool is_apart() const { return !std::holds_alternative<Mtp>(kind); }
  /// The layers of the model whose input it reads; empty: none.
  std::span<const std::int32_t> taps() const {
    return std::visit([](const auto& known) { return std::span<const std::int32_t>(known.taps); },
                      kind);
  }
  /// Those of other kinds are null.
  const Eagle3* eagle() const { return std::get_if<Eagle3>(&kind); }
  const Dflash* dflash() const { return std::get_if<Dflash>(&kind); }
  /// The token that stands for those to be guessed, where a whole block is guessed at once.
  std::optional<std::int32_t> block_mask() const {
    return dflash() == nullptr ? std::nullopt : std::optional(dflash()->mask);
  }
  /// Else it drafts token by token, each from the hidden state of the one before.
  bool runs_in_passes() const { return !block_mask(); }

  bool operator==(const DraftLayer&) const = default;
};

/// A model in words that all families share, as config.json describes it: values only, no tensors,
/// no device. State and KV bytes, the list of tensors, `hyb inspect` and `hyb fit` derive from it
/// without knowing the family.
struct Plan {
  std::string family;  ///< model_type
  std::int32_t vocab;  ///< rows of the embedding
  std::int32_t width;  ///< H
  float norm_eps;
  Norm final_norm = Norm::rms;
  float embedding_scale = 1.0F;
  bool embedding_times_root = false;  ///< sqrt(H) instead, rounded as activations are
  float logits_scale = 1.0F;          ///< factor on the logits
  float logits_cap = 0.0F;            ///< then cap * tanh(logits / cap); 0: none
  bool tied_head = false;
  DType weight_dtype = DType::bf16;  ///< what config.json says the weights are
  DType state_dtype = DType::f32;    ///< of the recurrent matrices
  std::int32_t positions_max = 0;    ///< max_position_embeddings; 0: not stated
  std::int32_t zeros_below = 0;      ///< how much less than its zero points GPTQ's file has
  bool reorders_columns = false;     ///< desc_act: groups of GPTQ's files are not runs of columns
  std::vector<Layer> layers;
  std::optional<LayerInputs> layer_inputs = {};
  std::optional<AltUp> altup = {};
  bool keeps_embedding = false;          ///< parts read the embedding beside the stream
  std::optional<DraftLayer> draft = {};  ///< only where it is to draft

  /// Numbers of a token for all layers; 0: none.
  std::int64_t layer_inputs_width() const {
    return layer_inputs ? std::ssize(layers) * layer_inputs->width : 0;
  }

  /// visit(part) of every part, in order; those of the draft layer come last.
  template <typename Visit>
  void visit_parts(const Visit& visit) const {
    for (const Layer& layer : layers) layer.visit_parts(visit);
    if (!draft) return;
    for (const Layer& layer : draft->layers) layer.visit_parts(visit);
  }

  /// Says whether positions past positions_max degrade.
  bool has_rope() const {
    bool found = false;
    visit_parts([&](const auto& part) {
      if constexpr (requires { part.rope; }) found |= part.rope.has_value();
      if constexpr (requires { part.attention; }) found |= part.attention.rope.has_value();
    });
    return found;
  }
  /// True if a part's output is not always added to the stream at once.
  bool has_branches() const {
    const auto has_one = [](const Layer& layer) {
      return std::ranges::any_of(layer.blocks, [](const Block& block) {
        return block.post_norm.has_value() || block.feeds_norm;
      });
    };
    return std::ranges::any_of(layers, has_one) ||
           (draft && std::ranges::any_of(draft->layers, has_one));
  }
  /// Inner width of the widest low-rank residual; 0: none.
  std::int32_t low_rank() const {
    std::int32_t widest = 0;
    for (const Layer& layer : layers) {
      for (const Block& block : layer.blocks) widest = std::max(widest, block.low_rank);
    }
    return widest;
  }
  bool norms_parts() const {
    return std::ranges::any_of(layers, [](const Layer& layer) {
      return std::ranges::any_of(layer.blocks, &Block::norms_parts);
    });
  }
  bool has_experts() const {
    bool found = false;
    visit_parts([&](const auto& part) { found |= part.work().experts > 0; });
    return found;
  }

  bool operator==(const Plan&) const = default;
};

}  // namespace hyb::models
