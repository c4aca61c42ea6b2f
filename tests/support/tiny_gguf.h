#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/text/unicode.h"
#include "tests/support/gguf_bytes.h"

namespace hyb::testing {

/// GPT-2's letters for the bytes.
inline std::vector<std::string> byte_letters() {
  std::vector<std::string> letters;
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool is_own = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    std::string letter;
    append_utf8(letter, is_own ? byte : next++);
    letters.push_back(std::move(letter));
  }
  return letters;
}

/// A model of architecture llama with random weights of `seed` in F32, one layer, 258 byte-level
/// tokens of which the last ends answers, and a chat template. `key` is written with `value` in
/// place of the usual one. `unread` names one more tensor, of a type that the format has no more.
/// `is_packed`: the matrices are zeros in Q8_0.
inline std::string tiny_gguf(std::uint32_t seed, const std::string& key = {},
                             std::uint32_t value = 0, const std::string& unread = {},
                             bool is_packed = false) {
  constexpr std::uint64_t width = 32, inner = 64, vocabulary = 258;
  std::vector<std::string> tokens = byte_letters();
  tokens.insert(tokens.end(), {"ab", "<|im_end|>"});
  std::vector<std::int32_t> kinds(vocabulary, 1);
  kinds.back() = 3;
  std::vector<std::pair<std::string, std::uint32_t>> numbers = {
      {"llama.block_count", 1},
      {"llama.context_length", 256},
      {"llama.embedding_length", width},
      {"llama.feed_forward_length", inner},
      {"llama.attention.head_count", 2},
      {"llama.attention.head_count_kv", 1},
      {"tokenizer.ggml.eos_token_id", vocabulary - 1}};
  for (auto& [name, number] : numbers) {
    if (name == key) number = value;
  }
  const std::pair<const char*, std::vector<std::uint64_t>> tensors[] = {
      {"token_embd.weight", {width, vocabulary}},  {"output_norm.weight", {width}},
      {"blk.0.attn_norm.weight", {width}},         {"blk.0.ffn_norm.weight", {width}},
      {"blk.0.attn_q.weight", {width, width}},     {"blk.0.attn_k.weight", {width, width / 2}},
      {"blk.0.attn_v.weight", {width, width / 2}}, {"blk.0.attn_output.weight", {width, width}},
      {"blk.0.ffn_gate.weight", {width, inner}},   {"blk.0.ffn_up.weight", {width, inner}},
      {"blk.0.ffn_down.weight", {inner, width}},
  };
  GgufBytes file;
  file.begin(std::size(tensors) + (unread.empty() ? 0 : 1), numbers.size() + 8)
      .key("general.architecture", "llama")
      .key("llama.attention.layer_norm_rms_epsilon", 1e-5F)
      .key("tokenizer.ggml.model", "gpt2")
      .key("tokenizer.ggml.pre", "gpt-2")
      .key("tokenizer.chat_template",
           "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}")
      .list("tokenizer.ggml.tokens", tokens)
      .list("tokenizer.ggml.token_type", kinds)
      .list("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  for (const auto& [name, number] : numbers) file.key(name, number);
  const auto elements = [](const std::vector<std::uint64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
  };
  const auto in_blocks = [&](const std::vector<std::uint64_t>& shape) {
    return is_packed && shape.size() == 2 ? elements(shape) / 32 * 34 : 0;
  };
  std::uint64_t offset = 0;
  for (const auto& [name, shape] : tensors) {
    const std::uint64_t packed = in_blocks(shape),
                        bytes = packed > 0 ? packed : 4 * elements(shape);
    file.tensor(name, shape, packed > 0 ? 8 : 0, offset);
    offset += (bytes + 31) / 32 * 32;
  }
  if (!unread.empty()) file.tensor(unread, {width}, 4, offset);
  std::mt19937 random(seed);
  for (const auto& [name, shape] : tensors) {
    file.pad();
    if (const std::uint64_t packed = in_blocks(shape); packed > 0) {
      file.raw(std::string(packed, '\0'));
      continue;
    }
    for (std::uint64_t i = 0; i < elements(shape); ++i) {
      file.add(static_cast<float>(random() % 2001) / 2000.0F - 0.5F);
    }
  }
  return file.bytes();
}

}  // namespace hyb::testing
