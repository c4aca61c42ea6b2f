#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/runner.h"
#include "models/decoder.h"
#include "models/drafting/draft_steps.h"
#include "models/row_sampler.h"
#include "models/step_rules.h"
#include "models/steps.h"

namespace hyb::models {

struct RunnerOptions {
  StoreLayout memory;                       ///< cut for this model
  std::int32_t step_tokens;                 ///< most tokens of a step
  std::int32_t sequences_max;               ///< most sequences of a step
  std::int32_t positions_max;               ///< most tokens of a sequence
  std::int32_t vocab_used;                  ///< ids from here on are padding and never sampled
  kernels::SuperblockMapOptions mapping{};  ///< how superblocks are backed by memory
  GraphOptions graphs{};                    ///< on a card
  kernels::SideCopyRoom side_copies = {};   ///< on a card: units under way beside steps
  std::int32_t step_samples = 0;   ///< most sampled rows; below sequences_max: sequences_max
  std::int32_t step_branches = 0;  ///< most branches of drafts of a step
};

/// core's Runner on a real model: stages a step's tables, runs the plan, samples. On a card steps
/// run asynchronously, and decode steps sample inside their graph.
class ModelRunner : public Runner {
 public:
  /// All but the options outlive the runner. Throws Error(memory) when there is not enough memory.
  /// `superblocks`: as Store's.
  ModelRunner(kernels::Queue& queue, const Plan& plan, const Weights& weights,
              const Geometry& geometry, const RunnerOptions& options,
              std::unique_ptr<kernels::SuperblockMap> superblocks = nullptr);

  /// A second one of the same model in the same pages and slots, with a workspace of its own, for
  /// steps without orders beside those of the first (EngineOptions::prefill_lane), which outlives
  /// this one. The queue is another one of the same device than the first's. Throws Error(memory)
  /// as above.
  ModelRunner(kernels::Queue& queue, const ModelRunner& first);

  Capacity capacity() const override { return rules_.capacity(); }
  const kernels::Queue& queue() const { return queue_; }
  kernels::Queue& queue() { return queue_; }
  const Store& store() const { return store_; }
  StepResult run(const Step& step) override;
  bool is_async() const override { return sampler_.on_card() != nullptr; }
  bool is_done() override;
  void launch(const Step& step) override;
  void prepare(const Step& next) override;
  void launch_prepared() override;
  StepResult wait() override;
  bool can_draft() const override { return drafts_.has_value(); }
  std::vector<std::vector<SampledToken>> draft(const Step& step) override;
  bool commit(SuperblockId superblock, bool may_create) override;
  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override;
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override;
  void read_beside(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override;
  void write_beside(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override;
  std::unique_ptr<PendingBytes> start_read(ViewId view, std::int32_t unit) override;
  bool can_stage_writes() const override;
  std::unique_ptr<StagedWrite> stage_write(std::size_t bytes) override;

  /// From the next step on; a change drops what was recorded.
  void set_graphs(const GraphOptions& options) { recordings_.set_options(options); }

  void release_caches() override { recordings_.drop(); }
  std::string holdings() const override;

  /// CUDA graphs recorded so far.
  std::int32_t graphs_recorded() const { return recordings_.recorded(); }
  /// Steps replayed from one, and draftings.
  std::int64_t graphs_replayed() const { return recordings_.replayed(); }

  /// Counts the bytes of the pools, and of everything else the runner owns.
  std::size_t pool_bytes() const { return store_.bytes(); }
  std::size_t workspace_bytes() const;

  /// Pinned host memory, through which a card's tables and answers go.
  static std::size_t pinned_bytes(kernels::Device device, const Plan& plan,
                                  const Geometry& geometry, const RunnerOptions& options);

  static std::size_t workspace_bytes(kernels::Device device, const Plan& plan,
                                     const Geometry& geometry, const RunnerOptions& options,
                                     int threads);

 private:
  ModelRunner(kernels::Queue& queue, const Plan& plan, const Weights& weights,
              const Geometry& geometry, const RunnerOptions& options,
              std::unique_ptr<kernels::SuperblockMap> superblocks, const Store* shared);
  void carry_out(std::span<const Order> orders);
  std::vector<float> download(const kernels::Tensor& logits, std::size_t rows);
  void stage(const Step& step, bool is_next);
  void launch_staged();

  kernels::Queue& queue_;
  const Plan& plan_;
  const Weights& weights_;
  const Geometry& geometry_;
  RunnerOptions options_;
  StepRules rules_;
  Store store_;
  Decoder decoder_;
  StepStaging staging_;
  RowSampler sampler_;
  Recordings recordings_;
  StepGraphs graphs_;
  std::optional<DraftSteps> drafts_;                  ///< where there is a draft layer
  std::unique_ptr<kernels::SideCopies> side_copies_;  ///< null: there are none
  struct RunningStep {
    WorkResult launched;  ///< empty: nothing is sampled
    bool keeps_logits;
  };
  std::vector<RunningStep> running_;  ///< at most two, the older first
  bool keeps_next_logits_ = false;    ///< of the step that is staged
  bool is_prepared_ = false;
};

}  // namespace hyb::models
