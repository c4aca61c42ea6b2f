#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/base/sampling.h"

namespace hyb {

/// More are of no use.
inline constexpr std::int32_t tree_branches_max = 8, tree_rows_max = 32;

/// Bounds of what a step verifies of one sequence.
struct TreeLimits {
  std::int32_t branches = 1;  ///< tokens that are tried at one position, or guesses without odds
  /// Tokens that the step runs of the sequence, the certain one included, and again in every
  /// branch, as are the drafts that it shares with others.
  std::int32_t rows = 0;
};

/// Drafts that may be drawn in this order, the first `shared` of which an earlier path has too.
struct DraftPath {
  std::vector<TokenId> drafts;
  std::int32_t shared = 0;
};

/// Turns what a model drafted, each token with those that are likeliest in its place, into a tree
/// of paths. Node by node the likeliest one per row that it costs is added: the next one of the
/// drafts for one row, or another token in the place of one, which is a branch. The first path is
/// of the drafts; the tree is empty where there are none.
std::vector<DraftPath> tree_of(std::span<const SampledToken> drafts, const TreeLimits& limits);

/// Guesses, best first, become a tree: the first one whole, of the others what there are rows for,
/// but none without a token that is new in its place.
std::vector<DraftPath> tree_of(std::span<const std::vector<TokenId>> guesses,
                               const TreeLimits& limits);

}  // namespace hyb
