#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "models/memory_layout.h"
#include "tests/models/loaded.h"

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;
using kernels::MapMode;

namespace {

constexpr std::int32_t length_max = 160;

/// Tokens of one answer, and the bits of their log-probabilities.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<std::uint32_t> logprobs;
  bool operator==(const Answer&) const = default;
};

class Answers : public Sink {
 public:
  void on_text(RequestId, std::int32_t, std::string_view) override {}
  void on_finish(RequestId request, std::int32_t choice, const Completion& completion) override {
    Answer& answer = heard[{request, choice}];
    answer.tokens = completion.tokens;
    for (const TokenEvent& event : completion.events) {
      answer.logprobs.push_back(std::bit_cast<std::uint32_t>(event.logprob));
    }
    reused += completion.usage.reused_tokens;
  }
  std::map<std::pair<RequestId, std::int32_t>, Answer> heard;
  std::int64_t reused = 0;
};

/// One way to run the same requests.
struct Setting {
  std::string memory = "flat";  ///< flat, flip, remap or tiny
  bool remembers = false;
  std::int32_t sequences = 1;
  std::int32_t chunk = 64;
};

class Folder {
 public:
  explicit Folder(const std::string& name)
      : queue_(kernels::Device::cpu, {.threads = 2, .isa = {}}), model_([&] {
          TensorFiles files(golden_folder / name);
          return load_model(queue_, Config::from_folder(golden_folder / name), files,
                            {.activation = DType::bf16});
        }()) {
    std::mt19937 random(5);
    const auto draw = [&](std::int32_t count) {
      std::vector<TokenId> tokens;
      while (count-- > 0) {
        tokens.push_back(TokenId{static_cast<std::int32_t>(random() % vocab())});
      }
      return tokens;
    };
    const std::vector<TokenId> system = draw(37);
    for (int i = 0; i < 5; ++i) {
      Request request;
      request.prompt = i == 4 ? requests_.front().prompt : system;
      const std::vector<TokenId> own = draw(9 + 7 * i);
      request.prompt.insert(request.prompt.end(), own.begin(), own.end());
      request.message_ends = {static_cast<std::int32_t>(system.size())};
      request.max_tokens = 12;
      request.choices = i == 2 ? 3 : 1;
      request.sampling.temperature = i % 2 == 0 ? 1.0F : 0.0F;
      request.sampling.seed = static_cast<std::uint64_t>(i);
      request.sampling.logprobs = 0;
      requests_.push_back(std::move(request));
    }
  }

  /// All answers, in the order of request and choice; each request is asked twice.
  std::vector<Answer> run(const Setting& setting, std::int64_t& reused) {
    ModelMemoryLayout elastic;
    ModelRunner runner(queue_, model_.plan, model_.weights, model_.geometry,
                       {.memory = memory_of(setting, elastic),
                        .step_tokens = 128,
                        .step_rows = 16,
                        .positions_max = length_max,
                        .vocab_used = model_.plan.vocab,
                        .mapping = {.mode = setting.memory == "remap"  ? MapMode::remap
                                            : setting.memory == "flat" ? MapMode::flat
                                                                       : MapMode::flip,
                                    .poison = setting.memory == "tiny"}});
    Engine engine(runner, nullptr,
                  {.length_max = length_max,
                   .sequences_max = setting.sequences,
                   .chunk_tokens = setting.chunk,
                   .prefixes = {.enabled = setting.remembers, .branch_tokens_min = 4},
                   .shared_tokens_min = 8,
                   .audit = true});
    Answers answers;
    for (int round = 0; round < 2; ++round) {
      for (const Request& request : requests_) {
        engine.submit(request, answers);
        engine.step();
        if (setting.sequences > 1) continue;
        while (!engine.idle()) engine.step();
      }
      while (!engine.idle()) engine.step();
    }
    reused += answers.reused;
    std::vector<Answer> all;
    for (auto& [who, answer] : answers.heard) all.push_back(std::move(answer));
    return all;
  }

 private:
  unsigned vocab() const { return static_cast<unsigned>(model_.plan.vocab); }

  StoreLayout memory_of(const Setting& setting, ModelMemoryLayout& elastic) const {
    const Geometry& geometry = model_.geometry;
    if (setting.memory == "flat") return flat_memory(geometry, 8 * length_max / page_tokens, 20);
    const std::size_t sequence =
        geometry.slot_bytes + geometry.page_bytes * (length_max / page_tokens + 1);
    const std::size_t pool_bytes = sequence * (setting.memory == "tiny" ? 3 : 20);
    elastic = memory_layout_of(geometry, {.pool_bytes = pool_bytes, .flat = {}});
    return store_layout(elastic);
  }

  kernels::Queue queue_;
  Model model_;
  std::vector<Request> requests_;
};

}  // namespace

TEST_SUITE("models/reuse_matrix") {
  TEST_CASE("no setting of reuse, company, chunks or memory changes a bit of an answer") {
    for (const std::string name :
         {"granite-dense-rope", "granite-mamba-only", "granite-attention-only", "granite-groups"}) {
      CAPTURE(name);
      Folder folder(name);
      std::int64_t reused = 0;
      const std::vector<Answer> expected = folder.run({}, reused);
      REQUIRE(expected.size() == 2 * 7);
      CHECK(reused == 2 * 2 * 59);  // further choices go on from the first one's prompt
      for (int i = 0; i < 48; ++i) {
        static const char* const memories[] = {"flat", "flip", "remap", "tiny"};
        const Setting setting = {.memory = memories[i % 4],
                                 .remembers = i / 4 % 2 == 1,
                                 .sequences = i / 8 % 2 == 1 ? 8 : 1,
                                 .chunk = std::array{64, 16, 5}[static_cast<std::size_t>(i / 16)]};
        CAPTURE(setting.memory);
        CAPTURE(setting.remembers);
        CAPTURE(setting.sequences);
        CAPTURE(setting.chunk);
        std::int64_t more = 0;
        CHECK(folder.run(setting, more) == expected);
        if (setting.remembers && setting.memory != "tiny") CHECK(more > reused + 200);
      }
    }
  }
}
