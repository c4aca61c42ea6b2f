#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/engine/sequence.h"

namespace hyb {

/// Holds what a step drew after the drafts of a branch, from the first that no earlier path has.
struct BranchResult {
  std::span<const SampledToken> rows;
  std::int32_t rows_begin;  ///< drafts before the first row
};
using BranchResults = std::vector<BranchResult>;

struct AcceptedDrafts {
  std::int32_t count = 0;
  std::optional<std::int32_t> branch;  ///< that has them; nullopt: the sequence's own drafts
  std::string text;                    ///< as Sequence::accept
};

/// The sequence draws token by token, as in plain steps, up to the first that is no draft, or that
/// ends it: that one has not run, what it was drawn after has. `rows` are those of its own drafts;
/// with a token that is the next one of a branch it goes on in the branch's.
AcceptedDrafts accept_drafts(Sequence& sequence, std::span<const SampledToken> rows,
                             const BranchResults& branches, Clock::time_point now);

}  // namespace hyb
