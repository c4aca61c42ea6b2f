#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/kernels/linear/gguf_stored.h"
#include "tests/support/gguf_bytes.h"

namespace hyb::models::testing {

/// A GGUF file of one layer, of llama or with experts of qwen3moe, whose matrices are random blocks
/// of several types; those whose names are here of these.
inline std::string mixed_gguf(bool has_experts = false,
                              const std::map<std::string_view, GgufType>& types = {}) {
  struct Tensor {
    std::string_view name;
    std::vector<std::uint64_t> dimensions;
    GgufType type;
  };
  std::vector<Tensor> tensors = {{"token_embd.weight", {256, 64}, GgufType::q8_0},
                                 {"output_norm.weight", {256}, GgufType::f32},
                                 {"blk.0.attn_norm.weight", {256}, GgufType::f32},
                                 {"blk.0.attn_q.weight", {256, 256}, GgufType::q4_k},
                                 {"blk.0.attn_k.weight", {256, 128}, GgufType::q4_k},
                                 {"blk.0.attn_v.weight", {256, 128}, GgufType::q6_k},
                                 {"blk.0.attn_output.weight", {256, 256}, GgufType::q5_k},
                                 {"blk.0.ffn_norm.weight", {256}, GgufType::f32}};
  const std::vector<Tensor> dense = {{"blk.0.ffn_gate.weight", {256, 320}, GgufType::iq4_nl},
                                     {"blk.0.ffn_up.weight", {256, 320}, GgufType::iq4_nl},
                                     {"blk.0.ffn_down.weight", {320, 256}, GgufType::q5_0}};
  const std::vector<Tensor> experts = {
      {"blk.0.attn_q_norm.weight", {64}, GgufType::f32},
      {"blk.0.attn_k_norm.weight", {64}, GgufType::f32},
      {"blk.0.ffn_gate_inp.weight", {256, 6}, GgufType::f32},
      {"blk.0.ffn_gate_exps.weight", {256, 256, 6}, GgufType::q4_k},
      {"blk.0.ffn_up_exps.weight", {256, 256, 6}, GgufType::q4_k},
      {"blk.0.ffn_down_exps.weight", {256, 256, 6}, GgufType::q6_k}};
  const std::vector<Tensor>& more = has_experts ? experts : dense;
  tensors.insert(tensors.end(), more.begin(), more.end());
  for (Tensor& tensor : tensors) {
    if (const auto other = types.find(tensor.name); other != types.end()) {
      tensor.type = other->second;
    }
  }

  const std::string model = has_experts ? "qwen3moe" : "llama";
  hyb::testing::GgufBytes bytes;
  bytes.begin(tensors.size(), has_experts ? 13 : 8)
      .key("general.architecture", model)
      .key(model + ".block_count", std::uint32_t{1})
      .key(model + ".context_length", std::uint32_t{128})
      .key(model + ".embedding_length", std::uint32_t{256})
      .key(model + ".feed_forward_length", std::uint32_t{320})
      .key(model + ".attention.head_count", std::uint32_t{4})
      .key(model + ".attention.head_count_kv", std::uint32_t{2})
      .key(model + ".attention.layer_norm_rms_epsilon", 1e-5F);
  if (has_experts) {
    bytes.key(model + ".expert_count", std::uint32_t{6})
        .key(model + ".expert_used_count", std::uint32_t{2})
        .key(model + ".expert_feed_forward_length", std::uint32_t{256})
        .key(model + ".attention.key_length", std::uint32_t{64})
        .key(model + ".attention.value_length", std::uint32_t{64});
  }
  std::string data;
  std::mt19937 engine(1);
  for (const Tensor& tensor : tensors) {
    bytes.tensor(tensor.name, tensor.dimensions, static_cast<std::uint32_t>(tensor.type),
                 data.size());
    std::uint64_t rows = 1;
    for (std::size_t i = 1; i < tensor.dimensions.size(); ++i) rows *= tensor.dimensions[i];
    if (tensor.type == GgufType::f32) {
      for (std::uint64_t i = 0; i < rows * tensor.dimensions[0]; ++i) {
        float number = std::uniform_real_distribution<float>(0.5F, 1.5F)(engine);
        if (tensor.name.ends_with("attn_norm.weight")) number *= 0.02F;  // scores of a few units
        data.append(reinterpret_cast<const char*>(&number), sizeof(number));
      }
    } else {
      const kernels::testing::Stored stored(tensor.type, 1, static_cast<std::int64_t>(rows),
                                            static_cast<std::int64_t>(tensor.dimensions[0]),
                                            static_cast<unsigned>(engine()));
      data.append(reinterpret_cast<const char*>(stored.bytes.data()), stored.bytes.size());
    }
    data.resize((data.size() + 31) / 32 * 32);
  }
  bytes.pad().raw(data);
  return bytes.bytes();
}

}  // namespace hyb::models::testing
