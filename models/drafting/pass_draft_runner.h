#pragma once

#include "models/drafting/draft_runner.h"

namespace hyb::models {

/// Drafts token by token: of a token and the hidden state of the position before it a layer makes
/// the hidden state of the token's own, whose logits are the guess. Keeps the hidden state of each
/// sequence's last position.
class PassDraftRunner : public DraftRunner {
 public:
  PassDraftRunner(LayerRunner& layers, const StepLimits& limits, float norm_eps);

  std::size_t bytes() const override;
  static std::size_t bytes(const Plan& plan, const StepSetting& setting);
  static std::size_t scratch_bytes(const Plan& plan, const StepSetting& setting);

  void write_entries(const StepTables& tables, const Streams& streams) override;
  void clear_entries(const StepTables& tables, const Streams& streams) override;
  void advance(const StepTables& tables) override;
  kernels::Tensor draft(const StepTables& tables, const kernels::Tensor& sample_rows,
                        bool is_further) override;

 protected:
  /// Hidden states of all tokens of a step, to `streams.normed`.
  virtual void find_hidden(const Streams& streams) = 0;
  /// The layer's input in the residual stream, of the tokens' embeddings and the hidden states
  /// before them. `pairs`: room for both, [T, 2H].
  virtual void join(const StepTables& tables, const kernels::Tensor& hidden,
                    const kernels::Tensor& pairs, const Streams& streams) = 0;
  /// Returns the input of the draft layers' first block.
  virtual PartCall first_input(const StepTables& tables, const kernels::Tensor& pairs,
                               const Streams& streams);
  virtual void run_layers(const StepTables& tables, const kernels::Tensor& pairs,
                          const Streams& streams) = 0;
  /// The hidden states of the sampled rows go to `kept`, [rows, H]; room for them is `last`.
  virtual kernels::Tensor logits(const Streams& streams, const kernels::Tensor& sample_rows,
                                 const kernels::Tensor& last, const kernels::Tensor& kept) = 0;

  /// Embeddings, scaled, and hidden states side by side, both normed.
  void make_pairs(const StepTables& tables, float embedding_scale, const kernels::Tensor& hidden,
                  const kernels::Tensor& pairs);

  const std::int64_t width_;

 private:
  PartMemory carry() const;
  kernels::Tensor carried_with_ring(const PartCall& call, const kernels::Tensor& hidden);
  void carry_over(const PartCall& call, const kernels::Tensor& hidden, const kernels::Tensor& y,
                  bool keeps);
  void carry_in_pages(const PartCall& call, const kernels::Tensor& hidden, const kernels::Tensor& y,
                      bool keeps);

  kernels::Buffer kept_;   // [rows, H], hidden states of the drafts drawn last
  kernels::Buffer zeros_;  // the hidden state of tokens without entries
};

}  // namespace hyb::models
