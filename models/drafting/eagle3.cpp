#include "models/drafting/eagle3.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "kernels/linear/project.h"
#include "kernels/ops/gather.h"
#include "models/drafting/pass_draft_runner.h"
#include "models/families/common.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

constexpr std::array<std::string_view, 2> eagle3_architectures = {"LlamaForCausalLMEagle3",
                                                                  "Eagle3LlamaForCausalLM"};

bool is_named_eagle3(const Config& c) {
  if (!c.has("architectures")) return false;
  return std::ranges::any_of(c.strings("architectures"), [](const std::string& name) {
    return name.find("Eagle3") != std::string::npos;
  });
}

void check_architecture(const Config& c) {
  if (!c.has("architectures")) return;
  for (const std::string& name : c.strings("architectures")) {
    // The first heads that were published call themselves a plain Llama.
    if (name == "LlamaForCausalLM" ||
        std::ranges::find(eagle3_architectures, name) != eagle3_architectures.end())
      continue;
    c.fail("architectures", fmt::format("{} is another kind of head than {}", quote_name(name),
                                        fmt::join(eagle3_architectures, " and ")));
  }
}

/// Refuses what only other kinds of heads have.
void refuse_variants(const Config& c) {
  demand(c, "hidden_act", "silu");
  for (const std::string_view key :
       {"attention_bias", "mlp_bias", "qkv_bias", "bias", "tie_word_embeddings", "fc_norm",
        "norm_output", "use_sliding_window", "parallel_drafting"}) {
    demand_flag(c, key, false);
  }
  if (const auto eagle = c.object("eagle_config")) {
    demand_flag(*eagle, "use_aux_hidden_state", true);
    demand_flag(*eagle, "parallel_drafting", false);
  }
  const std::int32_t layers = layer_count(c);
  if (layers != 1) c.fail("num_hidden_layers", fmt::format("is {}; a head has one layer", layers));
}

constexpr std::string_view taps_key = "eagle_aux_hidden_state_layer_ids";

/// Empty: there are none.
std::vector<std::int32_t> listed_layers(const Config& c) {
  if (!c.has(Keys{taps_key})) return {};
  return c.integers(Keys{taps_key}, count_range);
}

std::vector<std::int32_t> read_taps(const Config& c, std::int32_t layers) {
  const std::optional<Config> eagle = c.object("eagle_config");
  const std::vector<std::int32_t> entered = listed_layers(c);
  std::vector<std::int32_t> taps = eagle ? listed_layers(*eagle) : std::vector<std::int32_t>();
  for (std::int32_t& left : taps) ++left;
  if (!entered.empty() && !taps.empty()) c.fail(taps_key, "is there twice, also in eagle_config");
  if (!entered.empty()) taps = entered;
  if (taps.empty()) taps = {2, layers / 2, layers - 3};
  const bool ascends = taps.size() == 3 && 0 <= taps[0] && taps[0] < taps[1] && taps[1] < taps[2];
  if (!ascends || taps[2] >= layers) {
    c.fail(taps_key,
           fmt::format("of the model's {} layers those that are read would be {} (counted "
                       "from 0, before each); three in ascending order are needed",
                       layers, fmt::join(taps, ", ")));
  }
  return taps;
}

void check_sizes(const Config& c, const Plan& plan) {
  for (const std::string_view key : {"hidden_size", "target_hidden_size"}) {
    const std::int32_t width = c.i(Keys{key}, plan.width);
    if (width == plan.width) continue;
    c.fail(key, fmt::format("is {}, the model's is {}: this head is for another model", width,
                            plan.width));
  }
  const std::int32_t vocab = c.i("vocab_size");
  if (vocab != plan.vocab) {
    c.fail("vocab_size", fmt::format("is {}, the model has {} tokens: this head is for another "
                                     "model",
                                     vocab, plan.vocab));
  }
}

}  // namespace

bool is_eagle3(const Config& c) { return c.has("draft_vocab_size") || is_named_eagle3(c); }

DraftLayer eagle3_of(const Config& c, const Plan& plan) {
  if (!is_eagle3(c)) c.fail("architectures", "is no EAGLE-3 head's, nor is there draft_vocab_size");
  check_architecture(c);
  refuse_quantized(c);
  refuse_words(c);
  refuse_variants(c);
  check_sizes(c, plan);
  if (plan.altup) c.fail("architectures", "a model with several residual streams has no head");
  Attention attention = read_attention(c, read_head_dim(c));
  attention.rope = read_rope(c, attention.head_dim, 1.0);
  attention.has_keys_alone = true;
  attention.reads_pairs = true;
  const Mlp mlp = {.hidden = c.i("intermediate_size")};
  return {.layers = {{{{.norm = Norm::none, .parts = {attention}}, {.parts = {mlp}}}}},
          .kind = Eagle3{.taps = read_taps(c, static_cast<std::int32_t>(plan.layers.size())),
                         .vocab = c.i("draft_vocab_size", plan.vocab, {1, plan.vocab}),
                         .norm_eps = read_norm_eps(c, "rms_norm_eps"),
                         .adds_to_normed = c.b("norm_before_residual", false)}};
}

namespace {

constexpr TensorName eagle3_names[] = {
    {"draft.fc", "fc.weight"},
    {"draft.embedding_norm", "midlayer.input_layernorm.weight"},
    {"draft.embedding_norm", "layers.0.input_layernorm.weight"},
    {"draft.hidden_norm", "midlayer.hidden_norm.weight"},
    {"draft.hidden_norm", "layers.0.hidden_norm.weight"},
    {"attention.q", "midlayer.self_attn.q_proj.weight"},
    {"attention.q", "layers.0.self_attn.q_proj.weight"},
    {"attention.k", "midlayer.self_attn.k_proj.weight"},
    {"attention.k", "layers.0.self_attn.k_proj.weight"},
    {"attention.v", "midlayer.self_attn.v_proj.weight"},
    {"attention.v", "layers.0.self_attn.v_proj.weight"},
    {"attention.o", "midlayer.self_attn.o_proj.weight"},
    {"attention.o", "layers.0.self_attn.o_proj.weight"},
    {"block1.norm", "midlayer.post_attention_layernorm.weight"},
    {"block1.norm", "layers.0.post_attention_layernorm.weight"},
    {"mlp.gate", "midlayer.mlp.gate_proj.weight"},
    {"mlp.gate", "layers.0.mlp.gate_proj.weight"},
    {"mlp.up", "midlayer.mlp.up_proj.weight"},
    {"mlp.up", "layers.0.mlp.up_proj.weight"},
    {"mlp.down", "midlayer.mlp.down_proj.weight"},
    {"mlp.down", "layers.0.mlp.down_proj.weight"},
    {"draft.norm", "norm.weight"},
    {"draft.head", "lm_head.weight"},
};
/// The two tables, and a copy of the model's embedding.
constexpr std::string_view eagle3_unused[] = {"d2t", "t2d", "embed_tokens."};

[[noreturn]] void fail(const TensorFiles& files, std::string_view name, const std::string& text) {
  throw Error(ErrorKind::model,
              fmt::format("{}: tensor {}: {}", files.path_of(name).string(), name, text));
}

std::vector<std::int64_t> read_offsets(const Plan& plan, const TensorFiles& files) {
  const auto count = static_cast<std::size_t>(plan.draft->eagle()->vocab);
  std::vector<std::int64_t> offsets(count, 0);
  const TensorInfo* const stored = files.find("d2t");
  if (stored == nullptr) {
    if (plan.draft->eagle()->vocab == plan.vocab) return offsets;
    throw Error(ErrorKind::model,
                fmt::format("{}: without tensor d2t nothing says which tokens the {} of the head "
                            "are",
                            files.paths().front().string(), count));
  }
  const bool is_right = stored->fault.empty() &&
                        (stored->dtype == DType::i64 || stored->dtype == DType::i32) &&
                        stored->shape == std::vector<std::int64_t>{plan.draft->eagle()->vocab};
  if (!is_right) fail(files, "d2t", fmt::format("it is not [{}] of I64 or I32", count));
  const TensorView view = files.view("d2t");
  for (std::size_t i = 0; i < count; ++i) {
    if (view.dtype == DType::i64) {
      std::memcpy(&offsets[i], view.bytes.data() + i * sizeof(std::int64_t), sizeof offsets[i]);
    } else {
      std::int32_t offset = 0;
      std::memcpy(&offset, view.bytes.data() + i * sizeof offset, sizeof offset);
      offsets[i] = offset;
    }
  }
  return offsets;
}

/// t2d says of every token whether the head has it.
void check_mask(const Plan& plan, const TensorFiles& files,
                const std::vector<std::int32_t>& columns) {
  const TensorInfo* const stored = files.find("t2d");
  if (stored == nullptr) return;
  const bool is_right = stored->fault.empty() && size_of(stored->dtype) == 1 &&
                        stored->shape == std::vector<std::int64_t>{plan.vocab};
  if (!is_right) fail(files, "t2d", fmt::format("it is not [{}] of BOOL or U8", plan.vocab));
  const TensorView view = files.view("t2d");
  for (std::size_t token = 0; token < columns.size(); ++token) {
    if ((view.bytes[token] != std::byte{0}) == (columns[token] >= 0)) continue;
    fail(files, "t2d", fmt::format("of token {} it says other than d2t", token));
  }
}

}  // namespace

const Family eagle3_head = {
    .model_types = {}, .plan = nullptr, .names = eagle3_names, .unused = eagle3_unused};

std::vector<std::int32_t> eagle3_columns(const Plan& plan, const TensorFiles& files) {
  const std::vector<std::int64_t> offsets = read_offsets(plan, files);
  std::vector<std::int32_t> columns(static_cast<std::size_t>(plan.vocab), -1);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const auto column = static_cast<std::int64_t>(i);
    std::int64_t token = 0;
    const bool overflows = __builtin_add_overflow(column, offsets[i], &token);
    if (overflows || token < 0 || token >= plan.vocab) {
      fail(files, "d2t",
           fmt::format("entry {} is {}: with {} tokens the model has no such one", i, offsets[i],
                       plan.vocab));
    }
    std::int32_t& own = columns[static_cast<std::size_t>(token)];
    if (own >= 0) {
      fail(files, "d2t", fmt::format("entries {} and {} both are token {}", own, i, token));
    }
    own = static_cast<std::int32_t>(column);
  }
  check_mask(plan, files, columns);
  return columns;
}

std::vector<std::int32_t> spread_eagle3_columns(const Plan& plan) {
  const std::int64_t count = plan.draft->eagle()->vocab;
  std::vector<std::int32_t> columns(static_cast<std::size_t>(plan.vocab), -1);
  for (std::int64_t i = 0; i < count; ++i) {
    columns[static_cast<std::size_t>(i * plan.vocab / count)] = static_cast<std::int32_t>(i);
  }
  return columns;
}

namespace {

class Eagle3DraftRunner : public PassDraftRunner {
 public:
  Eagle3DraftRunner(LayerRunner& layers, const StepLimits& limits, const Eagle3& kind)
      : PassDraftRunner(layers, limits, kind.norm_eps), kind_(kind) {}

 protected:
  void find_hidden(const Streams& streams) override {
    kernels::project(queue_,
                     {.x = streams.taps, .weight = &draft_weights().fc, .y = streams.normed});
  }

  /// The layer reads the pairs themselves; the hidden states are its residual stream.
  void join(const StepTables& tables, const Tensor& hidden, const Tensor& pairs,
            const Streams& streams) override {
    if (hidden.data != streams.residual.data) layers_.copy_rows(hidden, streams.residual);
    make_pairs(tables, 1.0F, streams.residual, pairs);
    if (!kind_.adds_to_normed) return;
    kernels::apply(queue_, draft_norm(draft_weights().hidden_norm), streams.residual,
                   streams.residual);
  }

  PartCall first_input(const StepTables& tables, const Tensor& pairs,
                       const Streams& streams) override {
    PartCall call = PassDraftRunner::first_input(tables, pairs, streams);
    call.x = pairs;
    return call;
  }

  void run_layers(const StepTables& tables, const Tensor& pairs, const Streams& streams) override {
    Ordinals ordinals = layers_.draft_ordinals();
    const Layer& layer = draft_plan().layers.front();
    const LayerWeights& own = draft_weights().layers.front();
    layers_.run_first_part(layer.blocks.front(), own.blocks.front(),
                           first_input(tables, pairs, streams), ordinals);
    layers_.run_block(layer.blocks.back(), own.blocks.back(), tables, streams, ordinals);
  }

  Tensor logits(const Streams& streams, const Tensor& sample_rows, const Tensor& last,
                const Tensor& kept) override {
    const std::int64_t rows = sample_rows.dim(0);
    const Tensor out = layers_.scratch().take(DType::f32, {rows, layers_.plan().vocab});
    const Tensor own = layers_.scratch().take(DType::f32, {rows, kind_.vocab});
    kernels::gather_rows(queue_, {.x = streams.residual, .rows = sample_rows, .y = kept});
    kernels::project(queue_, {.x = kept,
                              .norm = draft_norm(draft_weights().norm),
                              .weight = &draft_weights().head,
                              .y = own,
                              .normed = last});
    kernels::spread_columns(queue_, {.x = own, .from = draft_weights().columns, .y = out});
    return out;
  }

 private:
  const Eagle3& kind_;
};

}  // namespace

std::unique_ptr<DraftRunner> make_eagle3_draft_runner(LayerRunner& layers, const StepLimits& limits,
                                                      const Eagle3& kind) {
  return std::make_unique<Eagle3DraftRunner>(layers, limits, kind);
}

}  // namespace hyb::models
