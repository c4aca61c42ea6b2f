#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "kernels/ops/pack_snapshot.h"
#include "kernels/weight_code.h"
#include "models/plan.h"

namespace hyb::models {

/// Matrices that a GGUF file has in blocks and that stay so in memory
/// (kernels/linear/gguf_blocks.h).
struct PackedBlocks {
  std::int64_t parameters = 0;
  double bytes = 0;       ///< that they take
  double head_bytes = 0;  ///< of one parameter of the head, or of a tied embedding; 0: it is not
  std::int64_t ordered_columns = 0;  ///< of the widest whose columns have an order (Weight::order)
  std::string types = {};            ///< "Q4_K, Q6_K", that of the most bytes first
};

/// Lists of types call weights of safetensors files in groups (published_groups.h) so.
inline constexpr const char* groups_name = "groups as published";

/// Options of how weights are stored in memory.
struct LoadOptions {
  DType activation = DType::bf16;  ///< bf16 or f32: what weights are packed for
  /// Linear weights and experts are packed to this; only with bf16. The head becomes q8, and so
  /// does the embedding where it is the head; routers and other small matrices, and an embedding
  /// that is not the head, stay plain.
  kernels::Quantize quantize = kernels::Quantize::none;
  /// Number of the plan's parameters that are published as F8_E4M3 (weight_index.h). Only estimates
  /// of sizes use it; loading goes by the files.
  std::int64_t fp8_parameters = 0;
  std::int64_t mxfp4_parameters = 0;  ///< the same of MXFP4, which only experts have
  PackedBlocks blocks = {};           ///< the same of blocks
  /// The share of the matrices' parameters that is published as F16 (weight_index.h): with f32 they
  /// stay F16. The same holds of it.
  double f16_share = 0;
  /// Linear weights, experts and the head take 12 bits where they would be bf16, exactly, where
  /// that pays (kernels/linear/bits12.h). Only with bf16, not quantised.
  bool lossless = false;
  /// Bytes of the weights above 12 bits each, with lossless: of patches, and of matrices where 12
  /// bits do not pay. Only estimates of sizes use it.
  std::size_t above_12_bits = 0;
  /// The model's own draft layer (MTP) reads a copy of the head in q4: its guesses cost less, and
  /// are nearly as good. Only with bf16.
  bool draft_head_q4 = false;
};

constexpr std::string_view name_of(kernels::Quantize quantize) {
  constexpr std::string_view names[] = {"none", "q8", "q4", "bits12"};
  return names[static_cast<std::size_t>(quantize)];
}

/// Returns what linear weights and experts are packed to.
constexpr kernels::Quantize linear_quantize(const LoadOptions& options) {
  return options.lossless ? kernels::Quantize::bits12 : options.quantize;
}

/// Returns what the head is packed to.
constexpr kernels::Quantize head_quantize(const LoadOptions& options) {
  const kernels::Quantize linear = linear_quantize(options);
  return linear == kernels::Quantize::q4 ? kernels::Quantize::q8 : linear;
}

/// Earlier positions that an attention layer reads: all, the last `tokens` (its own included), or
/// those from the last multiple of `tokens` on.
struct Reach {
  enum class Kind : std::uint8_t { all, window, chunk } kind = Kind::all;
  std::int32_t tokens = 0;
  bool operator==(const Reach&) const = default;
};

/// One of several ranks keeps these, where numbers are stored head after head.
struct RankHeads {
  std::int32_t heads = 0;   ///< of the model
  std::int32_t kept = 0;    ///< by every rank: consecutive ones
  std::int64_t width = 0;   ///< numbers of each
  std::int32_t copies = 1;  ///< consecutive ranks that keep the same ones
  std::int32_t first(std::int32_t rank) const { return rank / copies * kept; }
};

/// Keys and values of one attention layer. A layer that reads another layer's has none.
struct PageLayout {
  std::int32_t layer;     ///< index in Plan::layers, or after them in DraftLayer::layers
  std::int32_t block;     ///< index in Layer::blocks
  std::int32_t part;      ///< index in Block::parts
  std::int32_t kv_heads;  ///< of a rank
  std::int32_t head_dim;
  std::int64_t elements_per_token;  ///< keys and values: 2 * kv_heads * head_dim; latents: head_dim
  std::size_t page_bytes;           ///< elements_per_token * page_tokens * size of the kv dtype
  Reach reach = {};
  RankHeads heads = {};  ///< width: their numbers of one token; hidden states count as one head
};

/// The place of one recurrent part in a slot. Offsets are multiples of slot_alignment.
struct SlotPiece {
  std::int32_t layer;
  std::int32_t block;
  std::int32_t part;
  std::int32_t conv_channels;  ///< the window is [conv_channels, conv_width - 1], activation dtype
  std::int32_t conv_width;
  std::int32_t heads;    ///< of a rank: the state is [heads, rows, columns], state dtype; none: 0
  std::int32_t rows;     ///< ssd: head_dim P; delta net: key_dim
  std::int32_t columns;  ///< ssd: state_dim N; delta net: value_dim
  std::size_t conv_offset;
  std::size_t conv_bytes;
  std::size_t state_offset;
  std::size_t state_bytes;
  std::int32_t ring_width;  ///< numbers of activation dtype that a ring keeps of a draft
  std::vector<RankHeads> channels = {};  ///< of the window, and of a ring's entry
  std::vector<RankHeads> inputs = {};    ///< after them in a ring's entry
  RankHeads state = {};                  ///< width: rows * columns
};

inline constexpr std::int32_t page_tokens_default = 16;
inline constexpr std::size_t slot_alignment = 64;

struct GeometryOptions {
  LoadOptions load = {};
  std::optional<DType> kv = {};     ///< none: as the activations
  std::optional<DType> state = {};  ///< none: what the plan says
  std::int32_t page_tokens = page_tokens_default;
  std::int32_t ranks = 1;    ///< that run the model together: the geometry is that of each
  bool with_drafts = false;  ///< as in plan_of, for those that describe the model themselves
};

/// Bytes that a sequence of this model needs, derived from the plan alone: of several ranks, on
/// each of them.
struct Geometry {
  std::int32_t page_tokens;
  DType kv_dtype;
  DType state_dtype;
  std::int32_t ranks = 1;
  LoadOptions load;  ///< of the weights, of all ranks together
  /// In layer order; the index is the attention ordinal. With a draft layer and without slots the
  /// last ones are no layer's: the hidden state of every position, [H], activation dtype.
  std::vector<PageLayout> pages = {};
  bool has_hidden_pages() const { return !pages.empty() && pages.back().kv_heads == 0; }
  /// In layer order; the index is the recurrent ordinal. The last one is the draft layer's, where
  /// there is one: the hidden state of a sequence's last position, [H, 1]. Dflash needs neither.
  std::vector<SlotPiece> pieces = {};

  std::size_t kv_bytes_per_token;        ///< attention layers that see every position
  std::size_t window_kv_bytes = 0;       ///< of a sequence, at most: those with windows
  std::size_t page_bytes;                ///< one page id, all attention layers
  std::size_t slot_bytes;                ///< one slot, padded; a multiple of slot_alignment
  std::size_t state_bytes_per_sequence;  ///< windows and matrices without padding
};

/// Throws Error(model) when the plan asks for more bytes than can be counted, Error(usage) when its
/// heads cannot be divided among the ranks.
Geometry geometry_of(const Plan& plan, const GeometryOptions& options = {});

/// The layout of a packed (int8) snapshot, layer after layer. Offsets are multiples of
/// slot_alignment.
struct SnapshotLayout {
  std::vector<kernels::SnapshotPiece> pieces;  ///< one per SlotPiece
  std::size_t bytes = 0;  ///< of one snapshot, padded; 0 without recurrent layers
};

SnapshotLayout snapshot_layout(const Geometry& geometry);

/// The layout of a ring for drafts, layer after layer. Offsets are multiples of slot_alignment.
struct RingLayout {
  std::vector<std::size_t> offsets;  ///< of each SlotPiece: [tokens, ring_width], activation dtype
  std::size_t bytes = 0;             ///< of one ring, padded; 0: none
};

/// Without recurrent layers, or with 0 tokens, there are no rings.
RingLayout ring_layout(const Geometry& geometry, std::int32_t tokens);

}  // namespace hyb::models
