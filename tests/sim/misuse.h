#pragma once

#include <cstdint>
#include <string_view>

#include "core/memory/kind.h"

namespace hyb::sim {

/// Mistakes of those who use pool and tree, or of a kind; the simulation has to find each.
enum class Misuse {
  none,
  published_before_its_step,  ///< a snapshot can be resumed from in the step that makes it
  key_cut_at_the_lookup,      ///< looks up one token less than there is
  reference_leaked,           ///< a checkpoint is never given back
  page_owned_twice,           ///< two sequences write to one page
  window_freed_too_early,     ///< a kind gives up the last page that it needs
  tail_of_key_forgotten,      ///< a snapshot stands in the tree one token too early
  every_use_twice,            ///< a hit refreshes the snapshots above the used one too
};

const char* name_of(Misuse misuse);

/// Claims to need one position less than the kind does.
class ShortSighted final : public MemoryKind {
 public:
  explicit ShortSighted(const MemoryKind& kind) : kind_(&kind) {}
  std::string_view name() const override { return kind_->name(); }
  bool needs(PositionRange positions, std::int32_t length) const override {
    return kind_->needs(positions, length + 1);
  }

 private:
  const MemoryKind* kind_;
};

}  // namespace hyb::sim
