#include <doctest/doctest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/text/tokenizer.h"
#include "kernels/queue.h"
#include "models/steps.h"
#include "tests/perf/nemotron_layout.h"
#include "tests/perf/timing.h"

namespace async_steps_perf {

using namespace hyb;
using namespace hyb::perf;

namespace {

using Time = std::chrono::steady_clock::time_point;

constexpr std::int32_t length = 8 * 1024;

/// Draws tokens without a model and notes how long the host takes between two steps. Tables are
/// made as a real runner makes them.
class TableRunner final : public Runner {
 public:
  TableRunner(std::int32_t sequences, bool is_async)
      : sequences_(sequences),
        is_async_(is_async),
        queue_(kernels::Device::cpu, {.threads = 1, .isa = {}}),
        staging_(queue_, {.step_tokens = 16384,
                          .spans = 256,
                          .rows = 256,
                          .pages = length / 16 + 100,
                          .groups = 1}) {}

  Capacity capacity() const override {
    return {.memory = nemotron_layout(sequences_ * (length / 16 / 512 + 3) + 10),
            .step_tokens = 16384,
            .sequences_max = 256,
            .vocab = 1000};
  }
  bool is_async() const override { return is_async_; }
  StepResult run(const Step& step) override {
    launch(step);
    return wait();
  }
  void launch(const Step& step) override {
    stage(step);
    gap(std::chrono::steady_clock::now());
  }
  void prepare(const Step& next) override { stage(next); }
  void launch_prepared() override { gap(std::chrono::steady_clock::now()); }
  StepResult wait() override {
    StepResult result;
    for (std::size_t i = 0; i < rows_; ++i) {
      result.sampled.push_back({.token = TokenId{static_cast<std::int32_t>(random_() % 1000)},
                                .finite = true,
                                .logprob = 0,
                                .top = {}});
    }
    arrival_ = std::chrono::steady_clock::now();
    return result;
  }
  void read(ViewId, std::int32_t, std::span<std::byte>) override {}
  void write(ViewId, std::int32_t, std::span<const std::byte>) override {}

  std::vector<double> gaps;  ///< us from the last tokens that arrived to the next launch

 private:
  void stage(const Step& step) {
    staging_.stage(step);
    rows_ = 0;
    for (const Span& span : step.spans) rows_ += span.samples.size();
  }
  void gap(Time begin) {
    gaps.push_back(std::chrono::duration<double, std::micro>(begin - arrival_).count());
  }

  std::int32_t sequences_;
  bool is_async_;
  kernels::Queue queue_;
  models::StepStaging staging_;
  std::mt19937 random_{3};
  std::size_t rows_ = 0;
  Time arrival_;
};

class Silent : public Sink {
 public:
  void on_text(RequestId, std::int32_t, std::string_view text) override { bytes += text.size(); }
  void on_finish(RequestId, std::int32_t, const Completion&) override {}
  std::size_t bytes = 0;
};

/// 1000 words of a few letters.
Tokenizer words() {
  std::string vocab;
  for (int id = 0; id < 1000; ++id) {
    vocab += (id == 0 ? "\"w" : ", \"w") + std::to_string(id) + "\": " + std::to_string(id);
  }
  return Tokenizer::from_json(R"({"version": "1.0", "truncation": null, "padding": null,
      "normalizer": null, "post_processor": null, "added_tokens": [],
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                        "use_regex": false},
      "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                  "use_regex": false},
      "model": {"type": "BPE", "dropout": null, "unk_token": null,
                "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
                "byte_fallback": false, "merges": [], "vocab": {)" +
                                  vocab + "}}}",
                              "words");
}

/// How one step follows another.
enum class Pace {
  one_after_another,
  prepared,  ///< launched when the text has been looked at for a stop string
  ahead,     ///< launched while the step before runs: the gap is from the step before that one
};

double median_gap(const Tokenizer& tokenizer, std::int32_t sequences, Pace pace) {
  const bool is_async = pace != Pace::one_after_another;
  TableRunner runner(sequences, is_async);
  Silent sink;
  Engine engine(runner, &tokenizer,
                {.length_max = length + 1024, .sequences_max = sequences, .chunk_tokens = 4096});
  std::mt19937 random(1);
  for (std::int32_t i = 0; i < sequences; ++i) {
    Request request;
    request.prompt.resize(length);
    for (TokenId& token : request.prompt) {
      token = TokenId{static_cast<std::int32_t>(random() % 1000)};
    }
    request.max_tokens = 1000;
    if (pace == Pace::prepared) request.stop = {"no such text"};
    engine.submit(std::move(request), sink);
  }
  while (engine.running() < sequences || engine.usage().prefixes.published < sequences) {
    engine.step();
  }
  for (int i = 0; i < 50; ++i) engine.step();
  runner.gaps.clear();
  for (int i = 0; i < 300; ++i) engine.step();
  CHECK(engine.running() == sequences);
  CHECK(sink.bytes > 0);
  return median(runner.gaps);
}

}  // namespace

TEST_SUITE("perf/async_steps") {
  TEST_CASE("the host between the tokens of a decode step and the next step") {
    const Tokenizer tokenizer = words();
    for (const std::int32_t sequences : {1, 8, 64, 256}) {
      const std::string many = std::to_string(sequences) + " sequences at 8k tokens: ";
      const auto gap = [&](Pace pace) { return median_gap(tokenizer, sequences, pace); };
      report((many + "one after the other").c_str(), gap(Pace::one_after_another), "us");
      report((many + "prepared, with stop strings").c_str(), gap(Pace::prepared), "us");
      report((many + "work of the host while a step runs").c_str(), gap(Pace::ahead), "us");
    }
  }
}

}  // namespace async_steps_perf
