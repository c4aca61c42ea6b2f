#pragma once

#include <memory>

#include "models/layer_runner.h"

namespace hyb::models {

/// Runs the draft layers of a plan: what they keep of every token that the model runs, and their
/// guesses.
///
/// Entry j of such a layer's pages is made of token j and of the hidden state of position j - 1
/// (zeros for the first), so it depends on the sequence up to j alone, like every other. A hidden
/// state is the final norm's output, or f of Eagle3. A step writes the entries of all its tokens,
/// which takes no attention; the hidden state of a sequence's last position is kept in the slot,
/// those of drafts in the ring, or without slots those of all positions in the pages. Entry j of
/// Dflash's layers is made of what position j left in the model, and nothing else is kept for them.
///
/// A kind of drafts is a struct in plan.h, a file here that reads its config.json and runs it, and
/// a line in make_draft_runner().
class DraftRunner {
 public:
  /// `layers`: of a plan with a draft layer; outlives it. `norm_eps`: of the draft layers.
  DraftRunner(LayerRunner& layers, float norm_eps);
  DraftRunner(const DraftRunner&) = delete;
  DraftRunner& operator=(const DraftRunner&) = delete;
  virtual ~DraftRunner() = default;

  /// Beside scratch.
  virtual std::size_t bytes() const { return 0; }
  /// The same before one is made, and what it takes of scratch, beside what parts do; 0 of a plan
  /// without a draft layer.
  static std::size_t bytes(const Plan& plan, const StepSetting& setting);
  static std::size_t scratch_bytes(const Plan& plan, const StepSetting& setting);

  /// Entries of all tokens of a step that the model has run.
  virtual void write_entries(const StepTables& tables, const Streams& streams) = 0;
  /// Zeros instead, as a session that has no drafts leaves. Nothing may stay of what other tokens
  /// wrote.
  virtual void clear_entries(const StepTables& tables, const Streams& streams);
  /// Moves what is kept on by the entries of rings, without a step: `tables` has those alone.
  virtual void advance(const StepTables& tables);

  /// Logits [rows, vocab], in the order of `sample_rows`, in scratch. Writes the layers' entries of
  /// the step's positions, which the model's next steps write again, and nothing else: the tables
  /// have no slots to write.
  ///
  /// In passes, of the tokens after those of the step, one for every sequence. The first time after
  /// a step they are what is known and has not run; then, for the first of these sequences, at the
  /// positions after it, what was drawn from the last logits (`is_further`). Of blocks, whose
  /// tables are StepStaging::stage_blocks', of their sampled tokens.
  virtual kernels::Tensor draft(const StepTables& tables, const kernels::Tensor& sample_rows,
                                bool is_further) = 0;

 protected:
  /// Keys of a layer's first part, without attention.
  void write_keys(std::size_t layer, const PartCall& call, Ordinals& ordinals) const;
  /// All draft layers, whole.
  void run_all_layers(const StepTables& tables, const Streams& streams);
  /// One of the draft layers' norms, by its weight.
  kernels::InputNorm draft_norm(const kernels::Tensor& weight) const {
    return norm_of(draft_plan().norm, weight, norm_eps_);
  }
  const DraftLayer& draft_plan() const { return *layers_.plan().draft; }
  const DraftWeights& draft_weights() const { return *layers_.weights().draft; }

  LayerRunner& layers_;
  kernels::Queue& queue_;
  float norm_eps_;
};

/// The one of the plan's kind.
std::unique_ptr<DraftRunner> make_draft_runner(LayerRunner& layers, const StepLimits& limits);

}  // namespace hyb::models
