#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>

#include "app/request/model_texts.h"
#include "app/runtime/memory_plan.h"
#include "app/runtime/run_settings.h"
#include "app/runtime/session.h"
#include "core/engine/drafter.h"

namespace hyb::app {

/// Returns the share of a draft model in --memory: its weights and workspace, and an eighth of all
/// for its keys, values and states; 0 without one, or for an EAGLE-3 head. Throws as
/// Session::open() does before it reads a weight.
std::size_t draft_model_bytes(const RunSettings& settings);

/// Guesses what a sequence draws by what a smaller model of the same vocabulary would say of it at
/// temperature 0. That model has an engine of its own, whose prefix cache has what it ran before of
/// the sequence: a guess runs the tokens that are new since, then one step for every further token.
/// What it remembers is bounded by its own pools alone, so it never takes memory of the sequences.
class DraftModel final : public Drafter {
 public:
  /// --draft-model within this much memory, opened with the same settings otherwise. Throws as
  /// Session::open().
  DraftModel(const RunSettings& settings, std::size_t bytes, const SessionShape& shape);

  /// Throws Error(usage) for a target with another vocabulary, naming the first difference. Only
  /// tokens below `vocab` are drafted from then on.
  void check_vocabulary(const Tokenizer* target, std::int32_t vocab);

  /// Runs what is known of sequences that are new to it.
  void prepare(std::span<const DraftJob> jobs) override;
  void draft(std::span<DraftJob> jobs) override;
  bool takes_time() const override { return true; }
  bool may_draft_after_next(const ArrivalOrder&, std::span<const TokenId>) override { return true; }
  void forget(const ArrivalOrder& sequence) override { prepared_.erase(sequence); }

 private:
  std::optional<Request> request_of(const DraftJob& job) const;
  void run();

  Session session_;
  std::int32_t vocab_ = 0;           ///< of the target
  std::set<ArrivalOrder> prepared_;  ///< sequences
};

}  // namespace hyb::app
