#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/text/tokenizer.h"
#include "tests/models/golden.h"

namespace quantized_quality_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

const std::filesystem::path demo = tests_folder().parent_path() / "models/demo";

/// Questions and answers that the demo was not trained on.
std::vector<std::vector<TokenId>> heldout_texts() {
  const Tokenizer tokenizer =
      Tokenizer::from_json(read_whole_file(demo / "tokenizer.json", 1 << 26), "tokenizer.json");
  const std::string lines = read_whole_file(tests_folder() / "demo/heldout.jsonl", 1 << 26);
  std::vector<std::vector<TokenId>> texts;
  for (std::size_t start = 0; start < lines.size() && texts.size() < 60;) {
    const std::size_t end = lines.find('\n', start);
    const Json line = parse_json(std::string_view(lines).substr(start, end - start), "heldout");
    start = end == std::string::npos ? lines.size() : end + 1;
    const std::string text = line["messages"].back()["content"].get<std::string>() + ' ' +
                             line["expect"].get<std::string>();
    std::vector<TokenId> tokens = tokenizer.encode(text, {});
    if (tokens.size() > positions_max) tokens.resize(positions_max);
    texts.push_back(std::move(tokens));
  }
  return texts;
}

std::vector<double> log_probabilities(std::span<const float> logits) {
  double largest = -INFINITY, sum = 0;
  for (const float logit : logits) largest = std::max(largest, double{logit});
  for (const float logit : logits) sum += std::exp(logit - largest);
  std::vector<double> out;
  for (const float logit : logits) out.push_back(logit - largest - std::log(sum));
  return out;
}

struct Quality {
  double divergence = 0, agreement = 0;  ///< of a position: Kullback-Leibler, and of the likeliest
};

/// Of `options`' answers from those of plain bf16, over all positions of the texts.
Quality quality_of(const GeometryOptions& options, const std::vector<std::vector<TokenId>>& texts) {
  Loaded plain(demo, DType::bf16, kernels::best_isa());
  Loaded other(demo, options, kernels::best_isa());
  const auto vocab = static_cast<std::size_t>(plain.model.plan.vocab);
  Quality quality;
  double positions = 0;
  for (const std::vector<TokenId>& text : texts) {
    const std::vector<float> a = plain.run(text, 0), b = other.run(text, 0);
    for (std::size_t at = 0; at < a.size(); at += vocab) {
      const std::span row_a = std::span(a).subspan(at, vocab);
      const std::span row_b = std::span(b).subspan(at, vocab);
      const std::vector<double> p = log_probabilities(row_a), q = log_probabilities(row_b);
      for (std::size_t i = 0; i < vocab; ++i) quality.divergence += std::exp(p[i]) * (p[i] - q[i]);
      quality.agreement += likeliest(row_a) == likeliest(row_b) ? 1 : 0;
      positions += 1;
    }
  }
  quality.divergence /= positions;
  quality.agreement /= positions;
  return quality;
}

}  // namespace

TEST_SUITE("models/quantized_quality") {
  TEST_CASE("the demo's answers hardly change with q8, and stay near with q4") {
    const auto texts = heldout_texts();
    for (const kernels::Quantize quantize : {kernels::Quantize::q8, kernels::Quantize::q4}) {
      const Quality quality =
          quality_of({.load = {.activation = DType::bf16, .quantize = quantize}}, texts);
      const bool is_q8 = quantize == kernels::Quantize::q8;
      MESSAGE(name_of(quantize), ": KL ", quality.divergence, ", top-1 ", quality.agreement);
      CHECK(quality.divergence < (is_q8 ? 0.004 : 0.05));
      CHECK(quality.agreement > (is_q8 ? 0.98 : 0.9));
    }
  }

  TEST_CASE("the demo's answers stay near with keys and values in F8_E4M3") {
    const Quality quality =
        quality_of({.load = {.activation = DType::bf16}, .kv = DType::f8_e4m3}, heldout_texts());
    MESSAGE("kv fp8: KL ", quality.divergence, ", top-1 ", quality.agreement);
    CHECK(quality.divergence > 0);
    CHECK(quality.divergence < 0.008);  // codes cut off instead of rounded: 0.0094 and 96.9 %
    CHECK(quality.agreement > 0.97);
  }
}

}  // namespace quantized_quality_test
