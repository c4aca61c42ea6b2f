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
std::vector<float> logits_of(const GeometryOptions& options, std::int32_t chunk) {
  Loaded loaded(golden_folder / "granite-groups", options, kernels::best_isa());
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
      const std::vector<float> usual = logits_of({.activation = activation}, 150);
      for (const DType kv : {DType::f32, DType::bf16}) {
        for (const DType state : {DType::f32, DType::bf16}) {
          CAPTURE(name_of(activation));
          CAPTURE(name_of(kv));
          CAPTURE(name_of(state));
          GeometryOptions options = {.activation = activation, .kv = kv, .state = state};
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
}

}  // namespace models_decoder_test
