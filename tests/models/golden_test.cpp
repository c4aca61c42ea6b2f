#include <list>

#include "models/weight_index.h"
#include "tests/models/golden.h"

namespace models_golden_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

TEST_SUITE("models/golden") {
  TEST_CASE("f32 logits of every prompt position are those of transformers") {
    REQUIRE(fixtures().size() >= 6);
    for (const std::string& name : fixtures()) {
      const Golden golden(name);
      for (const kernels::Isa isa : levels()) {
        CAPTURE(name);
        CAPTURE(static_cast<int>(isa));
        Loaded loaded(golden.folder, DType::f32, isa);
        const double relative = distance_of_all_prompts(loaded, golden).relative_max();
        MESSAGE(name, " f32, level ", static_cast<int>(isa), ": ", relative);
        CHECK(relative <= 1e-4);
      }
    }
  }

  TEST_CASE("all 64 greedy tokens are those of transformers") {
    for (const std::string& name : fixtures()) {
      CAPTURE(name);
      const Golden golden(name);
      Loaded loaded(golden.folder, DType::f32, kernels::best_isa());
      const auto vocab = static_cast<std::size_t>(loaded.model.plan.vocab);
      const auto& prompt = golden.prompts[golden.json["main_prompt"].get<std::size_t>()];
      const std::vector<float> logits = loaded.run(prompt, 0);
      auto position = static_cast<std::int32_t>(prompt.size());
      std::vector<TokenId> answer = {likeliest(std::span(logits).last(vocab))};
      while (answer.size() < 64) {
        const std::vector<TokenId> last = {answer.back()};
        answer.push_back(likeliest(loaded.run(last, position++)));
      }
      CHECK(answer == Golden::ids(golden.json["greedy"]));
    }
  }

  TEST_CASE("bf16 logits are as near to f32 as those of transformers in bf16") {
    for (const std::string& name : fixtures()) {
      const Golden golden(name);
      for (const kernels::Isa isa : levels()) {
        CAPTURE(name);
        CAPTURE(static_cast<int>(isa));
        Loaded loaded(golden.folder, DType::bf16, isa);
        const Distance ours = distance_of_all_prompts(loaded, golden);
        const double rms = golden.json["bf16_distance"]["rms"].get<double>();
        const double middle = golden.json["bf16_distance"]["middle_row"].get<double>();
        MESSAGE(name, " bf16, level ", static_cast<int>(isa), ": middle row's ratio ",
                ours.middle_row() / middle, ", rms ratio ", ours.relative_rms() / rms);
        CHECK(ours.middle_row() <= 1.5 * middle);
        // One rounding that swaps a token's expert, or meets a norm of little, moves a row at
        // random, in transformers' run as in ours.
        CHECK(ours.relative_rms() <= 2.5 * rms);
      }
    }
  }
}

namespace {

/// The numbers of published files, every matrix widened to f32.
class WideWeights : public FileWeights {
 public:
  using FileWeights::FileWeights;

  kernels::WeightSource matrix(const WeightKey& key, std::int64_t experts, std::int64_t rows,
                               std::int64_t columns, bool transposed) override {
    const kernels::WeightSource narrow =
        FileWeights::matrix(key, experts, rows, columns, transposed);
    std::vector<float>& values = values_.emplace_back();
    for (std::int64_t r = 0; r < experts * rows; ++r) {
      for (std::int64_t k = 0; k < columns; ++k) {
        values.push_back(kernels::published_value(narrow.row(r), k));
      }
    }
    return {DType::f32, experts, rows, columns, std::as_bytes(std::span(values))};
  }

 private:
  std::list<std::vector<float>> values_;
};

}  // namespace

TEST_SUITE("models/golden") {
  TEST_CASE("weights of 12 bits give the logits of bf16, bit for bit") {
    std::size_t smaller = 0;
    for (const std::string& name : fixtures()) {
      const Golden golden(name);
      for (const kernels::Isa isa : levels()) {
        CAPTURE(name);
        CAPTURE(static_cast<int>(isa));
        Loaded plain(golden.folder, DType::bf16, isa);
        Loaded narrow(golden.folder, {.load = {.activation = DType::bf16, .lossless = true}}, isa);
        smaller += narrow.model.weights.packed_bytes < 0.85 * plain.model.weights.packed_bytes;
        for (const std::vector<TokenId>& prompt : golden.prompts) {
          const std::vector<float> expected = plain.run(prompt, 0), ours = narrow.run(prompt, 0);
          CHECK(std::memcmp(ours.data(), expected.data(), ours.size() * sizeof(float)) == 0);
          const std::vector<TokenId> next = {prompt.front()};
          const auto position = static_cast<std::int32_t>(prompt.size());
          CHECK(narrow.run(next, position) == plain.run(next, position));
        }
      }
    }
    CHECK(smaller > fixtures().size());
  }

  TEST_CASE("f16 weights give the bits that the same weights give in f32, in half of their bytes") {
    const Golden golden("qwen3-next-f16");
    for (const kernels::Isa isa : levels()) {
      CAPTURE(static_cast<int>(isa));
      Loaded narrow(golden.folder, DType::f32, isa);
      Loaded wide(
          [&](kernels::Queue& queue) {
            TensorFiles files(golden.folder);
            files.map();
            const Config config = Config::from_folder(golden.folder);
            const Family& family = family_of(config);
            Model model;
            model.plan = family.plan(config);
            model.geometry = geometry_of(model.plan, {.load = {.activation = DType::f32}});
            const WeightIndex index(model.plan, family, files);
            WideWeights weights(index);
            model.weights = load_weights(queue, model.plan, weights, model.geometry.load);
            return model;
          },
          kernels::Device::cpu, {.threads = 2, .isa = isa});
      CHECK(wide.model.weights.embed.dtype() == DType::f32);
      CHECK(wide.model.weights.packed_bytes > 1.9 * narrow.model.weights.packed_bytes);
      for (const auto& prompt : golden.prompts) CHECK(narrow.run(prompt, 0) == wide.run(prompt, 0));
    }
  }
}

}  // namespace models_golden_test
