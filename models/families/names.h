#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "models/families.h"

namespace hyb::models {

/// Names of tensors that several families have, to be joined() with a family's own.

inline constexpr TensorName model_names[] = {
    {"embed", "model.embed_tokens.weight"},
    {"head", "lm_head.weight"},
};

inline constexpr TensorName attention_names[] = {
    {"attention.q", "model.layers.{}.self_attn.q_proj.weight"},
    {"attention.k", "model.layers.{}.self_attn.k_proj.weight"},
    {"attention.v", "model.layers.{}.self_attn.v_proj.weight"},
    {"attention.o", "model.layers.{}.self_attn.o_proj.weight"},
};

/// Mamba-2 as read_mamba reads it.
inline constexpr TensorName mamba_names[] = {
    {"ssd.in_proj", "model.layers.{}.mamba.in_proj.weight"},
    {"ssd.conv_weight", "model.layers.{}.mamba.conv1d.weight"},
    {"ssd.conv_bias", "model.layers.{}.mamba.conv1d.bias"},
    {"ssd.a_log", "model.layers.{}.mamba.A_log"},
    {"ssd.d", "model.layers.{}.mamba.D"},
    {"ssd.dt_bias", "model.layers.{}.mamba.dt_bias"},
    {"ssd.norm", "model.layers.{}.mamba.norm.weight"},
    {"ssd.out_proj", "model.layers.{}.mamba.out_proj.weight"},
};

/// One table of several, in that order: of two layouts the one that comes first is preferred.
template <std::size_t... N>
constexpr std::array<TensorName, (N + ...)> joined(const TensorName (&... tables)[N]) {
  std::array<TensorName, (N + ...)> all{};
  auto end = all.begin();
  ((end = std::copy(tables, tables + N, end)), ...);
  return all;
}

}  // namespace hyb::models
