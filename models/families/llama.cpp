// Llama 3.x, and whatever else is published as llama: attention with rope and a gated feed-forward
// in every layer, nothing recurrent.
#include <fmt/format.h>

#include "core/base/log.h"
#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::llama {
namespace {

Plan plan(const Config& c) {
  Plan p = read_plan(c, "rms_norm_eps");
  Attention attention = read_attention(c, read_head_dim(c));
  attention.rope = read_rope(c, attention.head_dim, 1.0);
  p.layers = llama_layers(c, attention);
  return p;
}

constexpr std::string_view model_types[] = {"llama"};

GgufConfig gguf_config(const GgufKeys& k) {
  refuse_gguf_experts(k);
  constexpr std::int64_t first_context = 8192;
  const bool is_llama31 =
      gguf_vocabulary(k) == 128256 && k.integer("context_length") > first_context;
  if (is_llama31 && !k.has_tensor("rope_freqs.weight")) {
    log::warning(
        fmt::format("{}: it has no rope_freqs.weight, as files of Llama 3.1 from before "
                    "August 2024: beyond {} tokens answers get worse; a newer file has it",
                    k.files().paths().front().string(), first_context));
  }
  return gguf_common_config(k, "llama");
}

constexpr GgufArchitecture architectures[] = {
    {.name = "llama",
     .config = gguf_config,
     .family = {.plan = [](const Config& c) { return with_neighbours(plan(c)); },
                .names = gguf_names}}};

}  // namespace

const Family family = {model_types, plan, llama_names, table_of<architectures>};

}  // namespace hyb::models::llama
