#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>

#include "core/base/error.h"
#include "kernels/buffer.h"
#include "kernels/linear/project.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "models/plan.h"
#include "models/weights.h"

namespace hyb::models {

/// Activations of one step: tensors are taken one behind the other and given back together, by
/// returning to a mark. Nothing is allocated while a step runs.
class Scratch {
 public:
  static constexpr std::size_t alignment = 64;

  Scratch() = default;
  Scratch(kernels::Device device, std::size_t bytes) : buffer_(device, bytes) {}

  /// Space that a tensor of so many bytes takes.
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

/// A step's tables on the device (i32). T tokens in R spans, some of which may be chains, as in
/// kernels::CausalConv. On a card there may be room for more: spans without tokens stand last,
/// their slots are -1; tokens of no span have any position.
struct StepTables {
  kernels::Tensor tokens;           ///< [T]
  kernels::Tensor position_of_row;  ///< [T] of each token in its sequence
  kernels::Tensor span_begin;       ///< [R+1] first token of each span
  kernels::Tensor position;         ///< [R] of each span's first token
  kernels::Tensor read_slot;        ///< [R]
  kernels::Tensor write_slot;       ///< [R]
  kernels::Tensor pages;            ///< page tables of all groups and spans, one behind the other
  /// By page group, [R+1]: where each span's table begins and ends in `pages`.
  std::span<const kernels::Tensor> page_begin;
  bool single_tokens = false;  ///< every span has one token, T equals R, and none is in a chain
};

/// What a part reads and adds to. `residual += residual_scale * part(x)`.
struct PartCall {
  kernels::Queue& queue;
  const StepTables& tables;
  Scratch& scratch;
  kernels::Tensor x;         ///< [T,H]
  kernels::InputNorm norm;   ///< of x, or none: x is normed
  kernels::Tensor normed;    ///< [T,H] room for the norm of x
  kernels::Tensor residual;  ///< [T,H] the residual stream; x itself only where there is a norm
  float residual_scale;
  float norm_eps;
};

/// One attention layer's pages.
struct AttentionMemory {
  kernels::Tensor arena;
  std::size_t group;          ///< whose page tables it has
  kernels::Tensor workspace;  ///< lets the threads share the keys of long sequences
  std::int32_t page_tokens;
};

struct MoeMemory {
  kernels::Tensor workspace;  ///< zeros before its first use
};

/// One recurrent layer's part of every slot. Convolutions alone have windows only.
struct RecurrentMemory {
  kernels::Tensor windows, states;
  kernels::Tensor tickets;    ///< i32 zeros, one per token of a step
  kernels::Tensor workspace;  ///< of kernels::Ssd or kernels::DeltaRule
};

void run(const Attention& part, const AttentionWeights& weights, const AttentionMemory& memory,
         const PartCall& call);
void run(const Ssd& part, const SsdWeights& weights, const RecurrentMemory& memory,
         const PartCall& call);
void run(const DeltaNet& part, const DeltaNetWeights& weights, const RecurrentMemory& memory,
         const PartCall& call);
void run(const ShortConv& part, const ShortConvWeights& weights, const RecurrentMemory& memory,
         const PartCall& call);
void run(const Mlp& part, const MlpWeights& weights, const PartCall& call);
void run(const Moe& part, const MoeWeights& weights, const MoeMemory& memory, const PartCall& call);

/// Bytes of scratch that run() takes for so many tokens.
std::size_t scratch_bytes(const Attention& part, std::int64_t tokens, DType activation);
std::size_t scratch_bytes(const Ssd& part, std::int64_t tokens, DType activation);
std::size_t scratch_bytes(const DeltaNet& part, std::int64_t tokens, DType activation);
std::size_t scratch_bytes(const ShortConv& part, std::int64_t tokens, DType activation);
std::size_t scratch_bytes(const Mlp& part, std::int64_t tokens, DType activation);
inline std::size_t scratch_bytes(const Moe&, std::int64_t, DType) { return 0; }  // a workspace

/// Bytes of MoeMemory::workspace for so many tokens.
std::size_t workspace_bytes(const Moe& part, kernels::Device device, std::int64_t tokens,
                            std::int64_t width, DType activation);

}  // namespace hyb::models
