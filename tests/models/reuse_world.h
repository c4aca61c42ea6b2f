#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/io/file.h"
#include "core/memory/prefix/snapshot_io.h"
#include "models/memory_layout.h"
#include "tests/models/loaded.h"

namespace hyb::models::testing {

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
    last = completion.usage;
    reused += completion.usage.reused_tokens;
    prefilled += completion.usage.prefilled_tokens;
  }
  std::map<std::pair<RequestId, std::int32_t>, Answer> heard;
  Usage last;
  std::int64_t reused = 0, prefilled = 0;
};

/// A checksum of the logits after each sequence of tokens that was ever sampled.
using SeenLogits = std::map<std::vector<TokenId>, std::uint64_t>;

/// Passes everything on, and counts the rows whose logits are not those that the same tokens had
/// before, whatever ran them.
class Witness : public Runner {
 public:
  Witness(Runner& runner, SeenLogits& seen) : runner_(&runner), seen_(&seen) {}

  Capacity capacity() const override { return runner_->capacity(); }

  StepResult run(const Step& step) override {
    Step whole = step;
    whole.keep_logits = true;
    StepResult result = runner_->run(whole);
    const std::size_t rows = result.sampled.size();
    const std::size_t width = rows == 0 ? 0 : result.logits.size() / rows;
    std::size_t row = 0;
    for (const Span& span : step.spans) {
      for (const SampleRow& sample : span.samples) {
        const auto length = static_cast<std::size_t>(span.position + sample.token + 1);
        see(sample.history.first(length), std::span(result.logits).subspan(row++ * width, width));
      }
    }
    return result;
  }

  bool commit(SuperblockId superblock, bool may_create) override {
    return runner_->commit(superblock, may_create);
  }
  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override {
    runner_->read(view, unit, bytes);
  }
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override {
    runner_->write(view, unit, bytes);
  }

  std::int32_t differences = 0;

 private:
  void see(std::span<const TokenId> tokens, std::span<const float> logits) {
    const std::uint64_t sum = checksum(std::as_bytes(logits));
    const auto [entry, is_new] = seen_->try_emplace({tokens.begin(), tokens.end()}, sum);
    if (entry->second != sum) ++differences;
  }

  Runner* runner_;
  SeenLogits* seen_;
};

/// One way to run requests.
struct Setting {
  std::string memory = "flat";  ///< flat, flip, remap, or tiny (flip) and small (remap)
  bool remembers = false;
  std::int32_t sequences = 1;
  std::int32_t chunk = 64;

  bool is_short() const { return memory == "tiny" || memory == "small"; }
  kernels::MapMode mode() const {
    if (memory == "flat") return kernels::MapMode::flat;
    return memory == "remap" || memory == "small" ? kernels::MapMode::remap
                                                  : kernels::MapMode::flip;
  }
};

inline constexpr std::int32_t reuse_length_max = 160;

/// An engine on a model, with everything that it needs.
struct Life {
  Life(kernels::Queue& queue, const Model& model, const Setting& setting, SeenLogits& seen)
      : runner(queue, model.plan, model.weights, model.geometry,
               {.memory = memory_of(model.geometry, setting, queue.device(), elastic),
                .step_tokens = 128,
                .sequences_max = 16,
                .positions_max = reuse_length_max,
                .vocab_used = model.plan.vocab,
                .mapping = {.mode = setting.mode(), .poison = setting.memory == "tiny"}}),
        witness(runner, seen),
        engine(witness, nullptr,
               {.length_max = reuse_length_max,
                .sequences_max = setting.sequences,
                .chunk_tokens = setting.chunk,
                .prefixes = {.enabled = setting.remembers, .branch_tokens_min = 4},
                .shared_tokens_min = 8,
                .audit = true}),
        snapshot_io(engine.snapshot_io()) {}

  void run() {
    while (!engine.idle()) engine.step();
  }

  /// Of the first choice.
  Answer ask(const Request& request) {
    const RequestId id = engine.submit(request, answers);
    run();
    return answers.heard.at({id, 0});
  }

  ModelMemoryLayout elastic;
  ModelRunner runner;
  Witness witness;
  Engine engine;
  SnapshotIo snapshot_io;
  Answers answers;

 private:
  /// Of this many bytes, or of the next more that can be cut into superblocks: on a card a handle
  /// is larger than some of these pools.
  static ModelMemoryLayout layout_of(const Geometry& geometry, std::size_t bytes,
                                     std::size_t handle) {
    const std::size_t most = std::max(8 * bytes, 64 * handle);
    while (true) {
      try {
        return memory_layout_of(geometry,
                                {.pool_bytes = bytes, .flat = {}, .handle_bytes_min = handle});
      } catch (const Error&) {
        if (bytes > most) throw;
        bytes += bytes / 4;
      }
    }
  }

  static StoreLayout memory_of(const Geometry& geometry, const Setting& setting,
                               kernels::Device device, ModelMemoryLayout& elastic) {
    const auto pages = reuse_length_max / page_tokens_default;
    const std::size_t handle = kernels::handle_bytes_min(device);
    if (setting.memory == "flat") return flat_memory(geometry, 8 * pages, 20, handle);
    const std::size_t sequence = geometry.slot_bytes + geometry.page_bytes * (pages + 1);
    elastic = layout_of(geometry, setting.is_short() ? 3 * sequence : 20 * sequence, handle);
    return elastic;
  }
};

/// All answers, in the order of request and choice; each request is sent twice.
inline std::vector<Answer> answers_of(Life& life, const std::vector<Request>& requests,
                                      std::int32_t sequences) {
  for (int round = 0; round < 2; ++round) {
    for (const Request& request : requests) {
      life.engine.submit(request, life.answers);
      life.engine.step();
      if (sequences == 1) life.run();
    }
    life.run();
  }
  std::vector<Answer> all;
  for (const auto& [who, answer] : life.answers.heard) all.push_back(answer);
  return all;
}

/// A model folder, and what was seen of its logits by all its lives.
class ReuseFolder {
 public:
  /// On a card: batch-invariant.
  explicit ReuseFolder(const std::string& name, kernels::Device device = kernels::Device::cpu,
                       const GeometryOptions& options = {.load = {.activation = DType::bf16}})
      : queue_(device, {.threads = 2, .isa = {}, .batch_invariant = true}), model_([&] {
          TensorFiles files(golden_folder / name);
          return load_model(queue_, Config::from_folder(golden_folder / name), files, options);
        }()) {}

  std::unique_ptr<Life> live(const Setting& setting) {
    return std::make_unique<Life>(queue_, model_, setting, seen_);
  }

  std::vector<TokenId> draw(std::int32_t count) {
    const auto vocab = static_cast<unsigned>(model_.plan.vocab);
    std::vector<TokenId> tokens;
    while (count-- > 0) {
      tokens.push_back(TokenId{static_cast<std::int32_t>(random_() % vocab)});
    }
    return tokens;
  }

  std::size_t logits_seen() const { return seen_.size(); }

  /// Requests of which some share a prefix and one equals another.
  std::vector<Request> requests() {
    std::vector<Request> requests;
    const std::vector<TokenId> system = draw(37);
    for (int i = 0; i < 5; ++i) {
      Request request;
      request.prompt = i == 4 ? requests.front().prompt : system;
      const std::vector<TokenId> own = draw(9 + 7 * i);
      request.prompt.insert(request.prompt.end(), own.begin(), own.end());
      request.message_ends = {static_cast<std::int32_t>(system.size())};
      request.max_tokens = 12;
      request.choices = i == 2 ? 3 : 1;
      request.sampling.temperature = i % 2 == 0 ? 1.0F : 0.0F;
      request.sampling.seed = static_cast<std::uint64_t>(i);
      request.sampling.logprobs = 0;
      requests.push_back(std::move(request));
    }
    return requests;
  }

 private:
  kernels::Queue queue_;
  Model model_;
  SeenLogits seen_;
  std::mt19937 random_{5};
};

/// One of each: with both kinds of memory, without attention, without recurrence, with groups, with
/// windows, with chunks.
inline const std::vector<std::string> reuse_folders = {"bailing-delta",
                                                       "bailing-lightning",
                                                       "granite-dense-rope",
                                                       "granite-mamba-only",
                                                       "granite-attention-only",
                                                       "granite-groups",
                                                       "jamba",
                                                       "kimi-linear",
                                                       "bamba-1",
                                                       "falcon-h1-groups",
                                                       "lfm2-moe",
                                                       "lfm3",
                                                       "llama4",
                                                       "mamba2",
                                                       "minimax",
                                                       "nemotron-latent",
                                                       "nemotron-moe",
                                                       "olmo-hybrid",
                                                       "qwen3-next",
                                                       "qwen3_5-moe",
                                                       "zamba2"};

inline const GeometryOptions fp8_pages = {.load = {.activation = DType::bf16},
                                          .kv = DType::f8_e4m3};
/// Without and with norms of q and k; without recurrence.
inline const std::vector<std::string> fp8_folders = {"granite-dense-rope", "bailing-delta",
                                                     "kimi-linear",        "granite-attention-only",
                                                     "qwen3_5-moe",        "lfm2-moe"};

}  // namespace hyb::models::testing
