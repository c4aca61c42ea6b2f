#include "core/engine/accept_drafts.h"

#include "core/base/error.h"

namespace hyb {

AcceptedDrafts accept_drafts(Sequence& sequence, std::span<const SampledToken> rows,
                             const BranchResults& branches, Clock::time_point now) {
  AcceptedDrafts accepted;
  std::int32_t rows_begin = 0;
  for (;; ++accepted.count) {
    require(accepted.count >= rows_begin, "drafts: what a branch shares is run before it");
    const SampledToken& sampled = rows[static_cast<std::size_t>(accepted.count - rows_begin)];
    if (const std::optional<std::int32_t> taken = sequence.drafted().take_branch(sampled)) {
      accepted.branch = taken;
      rows = branches.at(static_cast<std::size_t>(*taken)).rows;
      rows_begin = branches.at(static_cast<std::size_t>(*taken)).rows_begin;
    }
    const bool is_drafted = sequence.drafted().is_drafted(sampled);
    accepted.text += sequence.accept(sampled, now);
    if (!is_drafted || sequence.finished()) return accepted;
  }
}

}  // namespace hyb
