#pragma once

#include <span>

#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "models/plan.h"
#include "models/scratch.h"
#include "models/weights.h"

namespace hyb::models {

/// One page group's tables of a step on the device (i32).
struct PageTables {
  kernels::Tensor page_begin;  ///< [R+1] each span's part of pages
  kernels::Tensor pages;       ///< page tables, one behind the other
};

/// A step's tables on the device (i32). T tokens in R spans.
struct StepTables {
  kernels::Tensor tokens;              ///< [T]
  kernels::Tensor position_of_row;     ///< [T] of each token in its sequence
  kernels::Tensor span_begin;          ///< [R+1] first token of each span
  kernels::Tensor position;            ///< [R] of each span's first token
  kernels::Tensor read_slot;           ///< [R]
  kernels::Tensor write_slot;          ///< [R]
  std::span<const PageTables> groups;  ///< one per page group
};

/// What a part reads and adds to. `residual += residual_scale * part(x)`.
struct PartCall {
  kernels::Queue& queue;
  const StepTables& tables;
  Scratch& scratch;
  kernels::Tensor x;         ///< [T,H] the normed input
  kernels::Tensor residual;  ///< [T,H] the residual stream
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

/// One recurrent layer's part of every slot.
struct SsdMemory {
  kernels::Tensor windows, states;
};

void run(const Attention& part, const AttentionWeights& weights, const AttentionMemory& memory,
         const PartCall& call);
void run(const Ssd& part, const SsdWeights& weights, const SsdMemory& memory, const PartCall& call);
void run(const Mlp& part, const MlpWeights& weights, const PartCall& call);
void run(const Moe& part, const MoeWeights& weights, const PartCall& call);

/// Bytes of scratch that run() takes for so many tokens of `width` values.
std::size_t scratch_bytes(const Attention& part, std::int64_t tokens, std::int64_t width,
                          DType activation);
std::size_t scratch_bytes(const Ssd& part, std::int64_t tokens, std::int64_t width,
                          DType activation);
std::size_t scratch_bytes(const Mlp& part, std::int64_t tokens, std::int64_t width,
                          DType activation);
std::size_t scratch_bytes(const Moe& part, std::int64_t tokens, std::int64_t width,
                          DType activation);

}  // namespace hyb::models
