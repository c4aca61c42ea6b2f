#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/engine/sequence.h"

namespace hyb {

/// A running sequence that may have drafts in the next step.
struct DraftJob {
  ArrivalOrder sequence;
  std::span<const TokenId> tokens;  ///< all that are known; the last one is about to run
  std::int32_t most = 0;
  std::int32_t guesses = 1;          ///< that are of use
  std::vector<TokenId> drafts = {};  ///< the answer: up to `most` tokens that may come next
  std::vector<std::vector<TokenId>> others = {};  ///< up to guesses - 1 more answers, best first
  /// Instead of both, from a drafter that knows: each draft with its likelihood and the `guesses`
  /// likeliest tokens in its place.
  std::vector<SampledToken> likely = {};
};

/// Guesses the tokens that sequences draw next. A guess costs time and nothing else: it is verified
/// in the step, and what is drawn never depends on it.
class Drafter {
 public:
  virtual ~Drafter() = default;

  /// Called before draft() with the same jobs: what has to be done once for a sequence, however
  /// many drafts it has later. All of them together have to be worth the time that it takes.
  virtual void prepare(std::span<const DraftJob>) {}

  /// Sets the drafts of all sequences that may have some in one step. Between two calls a
  /// sequence's tokens only grow.
  virtual void draft(std::span<DraftJob> jobs) = 0;

  /// Returns whether every draft takes time: then as many are wanted as are worth that and have
  /// memory, not as many as there can be.
  virtual bool takes_time() const { return false; }

  /// Returns whether it may have drafts for the sequence once one more token is known: then the
  /// next step is planned when that is so, and not launched before.
  virtual bool may_draft_after_next(const ArrivalOrder& sequence,
                                    std::span<const TokenId> tokens) = 0;

  /// The sequence has ended.
  virtual void forget(const ArrivalOrder& sequence) = 0;
};

}  // namespace hyb
