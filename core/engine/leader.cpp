#include "core/engine/leader.h"

#include <algorithm>

#include "core/base/common_tokens.h"

namespace hyb {
namespace {

/// The first point ahead of the leader, from `enough` to `length`, where a snapshot is wanted
/// anyway; else `length`.
std::int32_t agreed_length(const Sequence& leader, std::int32_t length, std::int32_t enough) {
  for (const Cut& cut : leader.cuts()) {
    if (cut.length > length) break;
    if (cut.length >= enough && cut.length > leader.memory().length()) return cut.length;
  }
  return length;
}

}  // namespace

std::optional<Leader> leader_for(const Sequence& newcomer, std::int32_t resumable,
                                 std::int32_t tokens_min, std::span<Sequence* const> running) {
  std::optional<Leader> best;
  const std::int32_t last = newcomer.tokens() - 1;  // is run in any case
  const std::int32_t enough = resumable + tokens_min;
  std::int32_t worthwhile = enough;
  for (const Sequence* other : running) {
    if (!(other->age() < newcomer.age()) || !other->request().keep_snapshots) continue;
    // A probe spares most comparisons.
    const std::int32_t needed = std::max(worthwhile, other->memory().length() + 1);
    if (needed > last || needed > other->tokens()) continue;
    const auto probe = static_cast<std::size_t>(needed - 1);
    if (other->known()[probe] != newcomer.known()[probe]) continue;
    const std::int32_t common = std::min(common_tokens(other->known(), newcomer.known()), last);
    if (common < needed) continue;
    best =
        Leader{.age = other->age(),
               .length = agreed_length(*other, common, std::max(enough, common - tokens_min + 1))};
    worthwhile = common + 1;
  }
  return best;
}

bool is_awaited(const Leader& leader, std::span<Sequence* const> running) {
  const auto found = std::lower_bound(
      running.begin(), running.end(), leader.age,
      [](const Sequence* sequence, const Age& age) { return sequence->age() < age; });
  return found != running.end() && (*found)->age() == leader.age &&
         (*found)->memory().length() < leader.length;
}

}  // namespace hyb
