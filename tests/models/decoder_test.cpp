#include <doctest/doctest.h>

#include <cmath>

#include "tests/models/loaded.h"

namespace models_decoder_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

std::vector<TokenId> prompt(std::int32_t length) {
  std::vector<TokenId> tokens;
  for (std::int32_t i = 0; i < length; ++i) tokens.push_back(TokenId{(i * 37 + 11) % 90 + 1});
  return tokens;
}

/// Logits of a prompt run in spans of `chunk` tokens.
std::vector<float> logits_of(Loaded& loaded, std::int32_t chunk) {
  const std::vector<TokenId> tokens = prompt(150);
  std::vector<float> all;
  for (std::size_t at = 0; at < tokens.size(); at += static_cast<std::size_t>(chunk)) {
    const auto count = std::min(tokens.size() - at, static_cast<std::size_t>(chunk));
    const std::vector<float> part =
        loaded.run(std::span(tokens).subspan(at, count), static_cast<std::int32_t>(at));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<float> logits_of(const GeometryOptions& options, std::int32_t chunk) {
  Loaded loaded(golden_folder / "granite-groups", options, kernels::best_isa());
  return logits_of(loaded, chunk);
}

/// Logits of a model of one layer with these blocks; equal parts have equal weights in all of them.
std::vector<float> logits_of(const std::vector<std::vector<Part>>& blocks, DType activation,
                             std::int32_t chunk = 150) {
  const auto load = [&](kernels::Queue& queue) {
    Model model = {
        .plan = {.family = "test", .vocab = 97, .width = 40, .norm_eps = 1e-5F, .layers = {}},
        .geometry = {},
        .weights = {}};
    Layer& layer = model.plan.layers.emplace_back();
    for (const std::vector<Part>& parts : blocks) layer.blocks.push_back({.parts = parts});
    model.geometry = geometry_of(model.plan, {.load = {.activation = activation}});
    RandomWeights provider(7);
    model.weights = load_weights(queue, model.plan, provider, model.geometry.load);
    return model;
  };
  Loaded loaded(load, kernels::Device::cpu, {.threads = 2, .isa = {}});
  return logits_of(loaded, chunk);
}

Ssd ssd(float output_scale) {
  return {.heads = 6,
          .head_dim = 10,
          .state_dim = 12,
          .shape = {.groups = 2},
          .conv_width = 4,
          .norm_groups = 2,
          .output_scale = output_scale};
}

Attention attention(float output_scale) {
  return {.heads = 4,
          .kv_heads = 2,
          .head_dim = 12,
          .scale = 0.3F,
          .rope = RopeParameters::plain(12, 1e4),
          .qk_norm = {},
          .output_scale = output_scale};
}

/// Root mean square of the difference, over that of the values.
double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, square = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    square += double{b[i]} * b[i];
  }
  return std::sqrt(difference / square);
}

}  // namespace

TEST_SUITE("models/decoder") {
  TEST_CASE(
      "whatever the types of keys, values and states: the same bits however a prompt is cut") {
    for (const DType activation : {DType::f32, DType::bf16}) {
      const std::vector<float> usual = logits_of({.load = {.activation = activation}}, 150);
      for (const DType kv : {DType::f32, DType::bf16}) {
        for (const DType state : {DType::f32, DType::bf16}) {
          CAPTURE(name_of(activation));
          CAPTURE(name_of(kv));
          CAPTURE(name_of(state));
          GeometryOptions options = {.load = {.activation = activation}, .kv = kv, .state = state};
          const std::vector<float> whole = logits_of(options, 150);
          CHECK(relative_difference(whole, usual) <= 0.03);
          CHECK((whole == usual) == (kv == activation && state == DType::f32));
          CHECK(logits_of(options, 1) == whole);
          CHECK(logits_of(options, 41) == whole);
          for (const std::int32_t page : {32, 64, 128}) {
            options.page_tokens = page;
            CHECK(logits_of(options, 64) == whole);
          }
        }
      }
    }
  }

  TEST_CASE("two parts of a block read one input, each has its own scale") {
    const std::vector<Part> both = {ssd(0.5F), attention(1.75F)};
    for (const DType activation : {DType::f32, DType::bf16}) {
      CAPTURE(name_of(activation));
      const std::vector<float> usual = logits_of({both}, activation);
      const double rounding = activation == DType::f32 ? 1e-6 : 0.02;
      // The order of the sum is that of the parts; another order is another rounding, no more.
      const double swapped =
          relative_difference(logits_of({{both[1], both[0]}}, activation), usual);
      CHECK(swapped > 0);
      CHECK(swapped < rounding);
      // Had the second part read what the first one adds:
      CHECK(relative_difference(logits_of({{both[0]}, {both[1]}}, activation), usual) > 0.05);
      const std::vector<Part> exchanged = {ssd(1.75F), attention(0.5F)};
      CHECK(relative_difference(logits_of({exchanged}, activation), usual) > 0.05);
      // A part of scale zero adds nothing.
      CHECK(logits_of({{ssd(0.5F), attention(0)}}, activation) ==
            logits_of({{ssd(0.5F)}}, activation));
      CHECK(logits_of({{ssd(0), attention(1.75F)}}, activation) ==
            logits_of({{attention(1.75F)}}, activation));
    }
  }

  TEST_CASE("two parts of a block: the same bits however a prompt is cut") {
    const std::vector<std::vector<Part>> blocks = {{ssd(0.5F), attention(1.75F)},
                                                   {Mlp{.hidden = 56}}};
    for (const DType activation : {DType::f32, DType::bf16}) {
      const std::vector<float> whole = logits_of(blocks, activation);
      CHECK(logits_of(blocks, activation, 1) == whole);
      CHECK(logits_of(blocks, activation, 41) == whole);
    }
  }

  TEST_CASE("factors on projections and gates, and a gate without a norm, stay exact in cuts") {
    Ssd plain = ssd(0.5F);
    plain.gate = SsdGate::gate_only;
    plain.projection_scales = {0.5F, 2.0F, 0.25F, 4.0F, 1.5F};
    Ssd norm_first = ssd(0.5F);
    norm_first.gate = SsdGate::norm_then_gate;
    const Mlp mlp = {.hidden = 56, .gate_scale = 0.75F};
    for (const DType activation : {DType::f32, DType::bf16}) {
      const std::vector<float> usual = logits_of({{ssd(0.5F)}, {Mlp{.hidden = 56}}}, activation);
      for (const Ssd& one : {plain, norm_first}) {
        const std::vector<float> whole = logits_of({{one}, {mlp}}, activation);
        CHECK(logits_of({{one}, {mlp}}, activation, 1) == whole);
        CHECK(logits_of({{one}, {mlp}}, activation, 41) == whole);
        CHECK(relative_difference(whole, usual) > 0.01);
      }
    }
  }
}

}  // namespace models_decoder_test
