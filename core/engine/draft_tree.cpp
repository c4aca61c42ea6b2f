#include "core/engine/draft_tree.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace hyb {
namespace {

/// Another token in the place of a draft.
struct Alternative {
  std::size_t place;
  TokenId token;
  double likelihood;  ///< of it and the drafts before it

  std::int32_t rows() const { return static_cast<std::int32_t>(place) + 2; }
  double worth() const { return likelihood / rows(); }
};

std::vector<Alternative> alternatives_to(std::span<const SampledToken> drafts,
                                         std::int32_t branches) {
  std::vector<Alternative> all;
  double before = 1;
  for (std::size_t place = 0; place < drafts.size(); ++place) {
    std::int32_t tried = 1;
    for (const auto& [token, logprob] : drafts[place].top) {
      if (token == drafts[place].token) continue;
      if (++tried > branches) break;
      all.push_back(
          {.place = place, .token = token, .likelihood = before * std::exp(double{logprob})});
    }
    before *= std::exp(double{drafts[place].logprob});
  }
  std::stable_sort(all.begin(), all.end(), [](const Alternative& one, const Alternative& other) {
    return one.worth() > other.worth();
  });
  return all;
}

}  // namespace

std::vector<DraftPath> tree_of(std::span<const SampledToken> drafts, const TreeLimits& limits) {
  std::vector<DraftPath> paths;
  if (drafts.empty()) return paths;
  std::vector<Alternative> others = alternatives_to(drafts, limits.branches);
  std::vector<Alternative> taken;
  std::size_t depth = 1;
  std::int32_t rows = limits.rows - 2;
  double next = std::exp(double{drafts.front().logprob});  // of all drafts up to the next one
  if (drafts.size() > 1) next *= std::exp(double{drafts[1].logprob});
  const auto takes_next = [&] { return depth < drafts.size() && rows > 0; };
  while (true) {
    const auto best = std::ranges::find_if(
        others, [&](const Alternative& one) { return one.place < depth && one.rows() <= rows; });
    if (best != others.end() && !(takes_next() && next >= best->worth())) {
      rows -= best->rows();
      taken.push_back(*best);
      others.erase(best);
      continue;
    }
    if (!takes_next()) break;
    --rows;
    if (++depth < drafts.size()) next *= std::exp(double{drafts[depth].logprob});
  }
  DraftPath& trunk = paths.emplace_back();
  for (std::size_t i = 0; i < depth; ++i) trunk.drafts.push_back(drafts[i].token);
  for (const Alternative& one : taken) {
    const auto shared = static_cast<std::ptrdiff_t>(one.place);
    const std::vector<TokenId>& all = paths.front().drafts;
    DraftPath branch = {.drafts = {all.begin(), all.begin() + shared},
                        .shared = static_cast<std::int32_t>(one.place)};
    branch.drafts.push_back(one.token);
    paths.push_back(std::move(branch));
  }
  return paths;
}

std::vector<DraftPath> tree_of(std::span<const std::vector<TokenId>> guesses,
                               const TreeLimits& limits) {
  std::vector<DraftPath> paths;
  std::int32_t rows = limits.rows;
  for (const std::vector<TokenId>& guess : guesses) {
    if (guess.empty() || std::ssize(paths) == limits.branches) break;
    DraftPath path = {.drafts = guess};
    for (const DraftPath& other : paths) {
      path.shared = std::max(path.shared, common_prefix(path.drafts, other.drafts));
    }
    const auto room = static_cast<std::size_t>(std::max(0, rows - 1));
    if (!paths.empty()) path.drafts.resize(std::min(path.drafts.size(), room));
    if (path.shared >= std::ssize(path.drafts)) continue;
    rows -= static_cast<std::int32_t>(path.drafts.size()) + 1;
    paths.push_back(std::move(path));
  }
  return paths;
}

}  // namespace hyb
