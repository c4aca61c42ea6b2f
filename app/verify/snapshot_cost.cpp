#include "app/verify/snapshot_cost.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "app/verify/sequence_reader.h"
#include "core/base/error.h"

namespace hyb::app {

SnapshotCost::SnapshotCost(Runner& runner, std::uint64_t seed)
    : runner_(&runner), seed_(seed), pool_(runner.capacity().memory) {}

std::vector<std::int32_t> SnapshotCost::random_cuts(std::int32_t tokens, std::int32_t snapshots) {
  std::mt19937_64 random(seed_++);
  std::set<std::int32_t> cuts;  // above 0 and below the end, so that a row follows each
  const std::int32_t count = std::min(snapshots, tokens - 1);
  while (static_cast<std::int32_t>(cuts.size()) < count) {
    cuts.insert(1 + static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(tokens - 1)));
  }
  return {cuts.begin(), cuts.end()};
}

void SnapshotCost::measure(const Passage& passage, std::int32_t snapshots) {
  require(snapshots > 0, "snapshot cost: a sequence goes through one snapshot or more");
  const Trace answer = std::move(Replay(*runner_).run({&passage, 1}).front());
  std::vector<TokenId> tokens = passage.prompt;
  tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
  if (tokens.size() < 2) return;
  // Replay had a pool of its own: what it left in superblocks has no owner now.
  pool_.resync_owners();
  const auto end = static_cast<std::int32_t>(tokens.size());
  const std::vector<std::int32_t> cuts = random_cuts(end, snapshots);
  SequenceReader exact(*runner_, pool_, tokens), packed(*runner_, pool_, tokens);
  exact.skip_to(cuts.front());
  packed.skip_to(cuts.front());
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    packed.go_through_snapshot();
    const std::int32_t next = i + 1 < cuts.size() ? cuts[i + 1] : end;
    while (exact.position() < next) {
      const std::int32_t count = std::min(exact.rows_max(), next - exact.position());
      const std::vector<LogitsRow> expected = exact.read(count), found = packed.read(count);
      for (std::size_t row = 0; row < expected.size(); ++row) {
        divergences_.add(expected[row], found[row]);
      }
    }
  }
}

}  // namespace hyb::app
