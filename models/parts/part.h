#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "kernels/buffer.h"
#include "kernels/linear/project.h"
#include "kernels/ops/kv_pages.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "kernels/weight.h"

/// Every part states this of itself, and a step hands it this. parts.h lists the parts and says
/// which members each has.
namespace hyb::models {

/// y = rms(x) * w, or rms(x) * (1 + w), or x, or layer_norm(x) * w: that one before a block and at
/// the end alone.
enum class Norm : std::uint8_t { rms, rms_1p, none, layer };

/// Division of the numbers of heads among ranks that run a model together.
enum class Division : std::uint8_t {
  heads,   ///< every rank has as many heads
  groups,  ///< the same; with fewer groups than ranks, a rank has the one that its heads share
  none,    ///< every rank has all of them
};

/// Numbers that are stored head after head.
struct HeadNumbers {
  Division division;
  std::int32_t heads;
  std::int64_t width;  ///< numbers of each
};

/// Keys and values of every token, or of the last `window` tokens, a step's own included, or of
/// those from the last multiple of `chunk` on.
struct KvShape {
  std::int32_t kv_heads;
  std::int32_t head_dim;
  std::int32_t window = 0, chunk = 0;  ///< 0: every token; one of them at most
  std::int32_t query_heads = 0;        ///< that read them: those of a rank share its kv heads
  bool are_latents = false;            ///< keys alone, which values are made of, too
};

/// Memory that a sequence keeps of all its tokens, in a size that does not grow.
struct StateShape {
  /// The window is [channels, conv_width - 1], activation dtype; these are its channels.
  std::vector<HeadNumbers> channels;
  std::int32_t conv_width;
  std::int32_t heads = 0;  ///< the state is [heads, rows, columns], state dtype; none: 0
  std::int32_t rows = 0;
  std::int32_t columns = 0;
  /// A ring keeps the numbers of a draft that enter the convolution, one per channel, and then
  /// these, which enter the recurrence beside them; activation dtype.
  std::vector<HeadNumbers> inputs = {};
};

/// The memory of a part: in every page, and in every slot.
struct MemoryShape {
  std::optional<KvShape> kv = {};
  /// The layer whose keys and values are read instead; -1: none. It comes before.
  std::int32_t kv_of = -1;
  std::optional<StateShape> state = {};
};

/// FLOPs of a part besides the products with its weights; a multiplication and an addition are two.
struct PartWork {
  /// Causal attention: 4 x this for every pair of a query and a position before it, of which it
  /// sees the last `attention_window`, or those in its chunk; 0: all.
  double attention_width = 0;
  std::int32_t attention_window = 0, attention_chunk = 0;
  double token_flops = 0;  ///< per token
  /// A recurrence that runs in chunks, per token and token of its chunk. A step of fewer tokens is
  /// one chunk of its own length.
  double chunk_flops = 0;
  std::int64_t chunk_tokens = 0;
  /// A mixture of experts: every token goes through `active` of `experts`.
  std::int32_t experts = 0, active = 0;
};

/// Text of a part in `hyb inspect`: parts of equal texts are shown together.
struct PartText {
  std::string kind;  ///< "attention", "ssd", "delta", "conv", "mlp", "moe", ...
  std::string text;  ///< "12 heads x 128, 4 kv heads"
};

struct StepLimits {
  std::int64_t step_tokens;          ///< most tokens of a step
  std::int64_t spans;                ///< most spans of a step
  std::int64_t rows;                 ///< most rows of logits
  std::int64_t positions;            ///< most tokens of a sequence
  std::int64_t ring_rows = 0;        ///< most rows in RingTables::from
  std::int64_t ordered_columns = 0;  ///< as PackedBlocks has it
};

/// A part's steps run here and are at most this large.
struct StepSetting {
  kernels::Device device;
  DType activation;
  std::int64_t width;  ///< H, of the residual stream
  StepLimits limits;
};

/// Limits the bytes with which workers share all sequences' keys: less only means fewer workers per
/// sequence, and a large batch has enough work without sharing.
inline std::size_t attention_workspace(const StepSetting& setting, std::size_t bytes) {
  const std::size_t enough = std::size_t{setting.device == kernels::Device::cpu ? 4U : 64U} << 20;
  return std::min(bytes, enough);
}

/// The spans of a step that continue from a ring or have drafts, which come last, as recurrent
/// layers take them: each with the ring's entries before its own tokens, and its drafts as a span
/// of their own that leaves no state. E rows in S spans; on a card there may be room for more.
struct RingTables {
  std::int64_t spans = 0, tokens = 0;  ///< of the step; 0: there are none
  kernels::Tensor from;                ///< [E] as in kernels::ExtendRows; x: these tokens
  kernels::Tensor span_begin;          ///< [S+1] first row of each
  kernels::Tensor read_slot;           ///< [S]
  kernels::Tensor write_slot;          ///< [S]
  kernels::Tensor row_of_token = {};   ///< [tokens] the rows that are theirs
  kernels::Tensor kept = {};           ///< [tokens] as in kernels::KeepRows
};

/// A step's tables on the device (i32). T tokens in R spans, some of which may be chains, as in
/// kernels::CausalConv. On a card there may be room for more: spans without tokens come last, their
/// slots are -1; tokens of no span have any position.
struct StepTables {
  kernels::Tensor tokens;           ///< [T]
  kernels::Tensor position_of_row;  ///< [T] of each token in its sequence
  kernels::Tensor span_begin;       ///< [R+1] first token of each span
  kernels::Tensor position;         ///< [R] of each span's first token
  kernels::Tensor read_slot;        ///< [R]
  kernels::Tensor write_slot;       ///< [R]
  kernels::Tensor pages;            ///< page tables of all groups and spans, one after the other
  /// Page groups' [R+1] each: where each span's table begins and ends in `pages`.
  std::span<const kernels::Tensor> page_begin;
  /// No span ends after this many positions: one of a few values, since grids depend on it.
  std::int64_t positions = 0;
  /// Every span has one token, T equals R, none is in a chain or in `ring`.
  bool single_tokens = false;
  RingTables ring = {};
  /// Rows [T] of the pages that have the hidden state of every position: as in kernels::ExtendRows
  /// of the token before each, and as in kernels::KeepRows of each.
  kernels::Tensor hidden_before = {}, hidden = {};
  /// The position [R] of the last token of each one's block, where drafts come in blocks, whose
  /// tokens are a chain of single ones.
  kernels::Tensor block_end = {};
};

/// Activations of one step: tensors are taken one after the other and given back together, by
/// returning to a mark. Nothing is allocated while a step runs.
class Scratch {
 public:
  static constexpr std::size_t alignment = 64;

  Scratch() = default;
  Scratch(kernels::Device device, std::size_t bytes) : buffer_(device, bytes) {}

  /// Bytes that a tensor of `bytes` takes.
  static constexpr std::size_t padded(std::size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
  }

  /// The same of a tensor [tokens, columns].
  static std::size_t space(DType dtype, std::int64_t tokens, std::int64_t columns) {
    return padded(static_cast<std::size_t>(tokens * columns) * size_of(dtype));
  }

  kernels::Tensor take(DType dtype, std::initializer_list<std::int64_t> shape) {
    std::size_t bytes = size_of(dtype);
    for (const std::int64_t dim : shape) bytes *= static_cast<std::size_t>(dim);
    const std::size_t offset = used_;
    used_ += padded(bytes);
    require(used_ <= buffer_.bytes(), "scratch: every part states what it takes");
    return buffer_.tensor(offset, dtype, shape);
  }

  std::size_t mark() const { return used_; }
  void return_to(std::size_t mark) { used_ = mark; }
  std::size_t bytes() const { return buffer_.bytes(); }

 private:
  kernels::Buffer buffer_;
  std::size_t used_ = 0;
};

/// Gives back at the end of its life what was taken during it.
class ScratchFrame {
 public:
  explicit ScratchFrame(Scratch& scratch) : scratch_(scratch), mark_(scratch.mark()) {}
  ~ScratchFrame() { scratch_.return_to(mark_); }
  ScratchFrame(const ScratchFrame&) = delete;
  ScratchFrame& operator=(const ScratchFrame&) = delete;

 private:
  Scratch& scratch_;
  std::size_t mark_;
};

/// A low-rank product that is added to the first one of a part: y += [right_0 * l_0 | right_1 * l_1
/// | ...], where [l_0 | l_1 | ...] = left * x, each as wide as the others.
struct Adapter {
  kernels::Weight left;
  std::vector<kernels::Weight> rights;
};

struct SharedTransformerWeights;

/// A part reads this and adds to it: `residual += output_scale * part(x)`, or without `add`
/// `residual = output_scale * part(x)`.
struct PartCall {
  kernels::Queue& queue;
  const StepTables& tables;
  Scratch& scratch;
  kernels::Tensor x;         ///< [T,H]
  kernels::InputNorm norm;   ///< of x, or none: x is normed
  kernels::Tensor normed;    ///< [T,H] room for the norm of x
  kernels::Tensor residual;  ///< [T,H] the residual stream; x itself only where
                             ///< there is a norm
  float norm_eps;
  bool add = true;
  kernels::Tensor layer_inputs = {};  ///< [T,layers*width], as Plan::layer_inputs says
  kernels::Tensor pair = {};          ///< [T,2H], as Plan::keeps_embedding says
  const SharedTransformerWeights* shared = nullptr;  ///< of the first layer with a part's block
  const Adapter* adapter = nullptr;                  ///< of the first product; x is normed
};

inline void add_adapter(const PartCall& call, const kernels::Tensor& y) {
  const ScratchFrame frame(call.scratch);
  const Adapter& adapter = *call.adapter;
  const kernels::Tensor low = call.scratch.take(call.x.dtype, {call.x.dim(0), adapter.left.rows()});
  kernels::project(call.queue, {.x = call.x, .weight = &adapter.left, .y = low});
  std::int64_t from = 0, to = 0;
  for (const kernels::Weight& right : adapter.rights) {
    kernels::project(call.queue, {.x = low.columns(from, right.columns()),
                                  .weight = &right,
                                  .y = y.columns(to, right.rows()),
                                  .add = true});
    from += right.columns();
    to += right.rows();
  }
}

/// The bytes of a part's memory; empty tensors where it has none.
struct PartMemory {
  kernels::Tensor pages = {};  ///< [pages, page elements] of its layer
  std::size_t page_group = 0;
  std::int32_t page_tokens = 0;
  kernels::Tensor windows = {}, states = {};  ///< of every slot
  kernels::Tensor rings = {};                 ///< [rings, entries, ring width]; empty: no drafts
  kernels::Tensor semaphores = {};            ///< i32 zeros, one per token of a step
  kernels::Tensor workspace = {};             ///< workspace_bytes(), zeros before its first use

  /// Finds a step's tokens in `pages`.
  kernels::KvPages kv_pages(const StepTables& tables) const {
    return {.arena = pages,
            .span_begin = tables.span_begin,
            .position = tables.position,
            .page_begin = tables.page_begin[page_group],
            .pages = tables.pages,
            .page_tokens = page_tokens};
  }
};

}  // namespace hyb::models
