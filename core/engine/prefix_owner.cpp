#include "core/engine/prefix_owner.h"

#include <algorithm>

#include "core/memory/prefix/token_tree.h"

namespace hyb {
namespace {

/// The first point ahead of the owner, from `enough` to `length`, where a snapshot is wanted
/// anyway; else `length`.
std::int32_t agreed_length(const Sequence& prefix_owner, std::int32_t length, std::int32_t enough) {
  for (const Cut& cut : prefix_owner.cuts()) {
    if (cut.length > length) break;
    if (cut.length >= enough && cut.length > prefix_owner.memory().length()) return cut.length;
  }
  return length;
}

}  // namespace

std::optional<PrefixOwner> prefix_owner_for(const Sequence& newcomer, std::int32_t resumable,
                                            std::int32_t tokens_min,
                                            std::span<Sequence* const> running) {
  std::optional<PrefixOwner> best;
  const std::int32_t last = newcomer.tokens() - 1;  // is always run
  const std::int32_t enough = resumable + tokens_min;
  std::int32_t worthwhile = enough;
  for (const Sequence* other : running) {
    if (!(other->age() < newcomer.age()) || !other->request().keep_snapshots) continue;
    // Comparing one token first avoids most comparisons.
    const std::int32_t needed = std::max(worthwhile, other->memory().length() + 1);
    if (needed > last || needed > other->tokens()) continue;
    const auto probe = static_cast<std::size_t>(needed - 1);
    if (other->known()[probe] != newcomer.known()[probe]) continue;
    const std::int32_t common = std::min(common_prefix(other->known(), newcomer.known()), last);
    if (common < needed) continue;
    best = PrefixOwner{
        .age = other->age(),
        .length = agreed_length(*other, common, std::max(enough, common - tokens_min + 1))};
    worthwhile = common + 1;
  }
  return best;
}

bool is_awaited(const PrefixOwner& prefix_owner, std::span<Sequence* const> running) {
  const auto found = std::lower_bound(
      running.begin(), running.end(), prefix_owner.age,
      [](const Sequence* sequence, const ArrivalOrder& age) { return sequence->age() < age; });
  return found != running.end() && (*found)->age() == prefix_owner.age &&
         (*found)->memory().length() < prefix_owner.length;
}

}  // namespace hyb
