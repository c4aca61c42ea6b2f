#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/memory/prefix/prefix_tree.h"

namespace hyb {

/// A point of a prompt where a snapshot is wanted: chunks are cut there.
struct Cut {
  std::int32_t length;
  SnapshotPlace place;
};

/// The cuts of a sequence that are ahead of it.
class Cuts {
 public:
  /// They are ascending.
  explicit Cuts(std::vector<Cut> cuts = {}) : cuts_(std::move(cuts)) {}

  /// Does nothing where there is one already.
  void add(const Cut& cut) {
    const auto at = std::ranges::lower_bound(cuts_, cut.length, {}, &Cut::length);
    if (at == cuts_.end() || at->length != cut.length) cuts_.insert(at, cut);
  }

  /// The first one after `length`, or `end` where that comes first.
  std::int32_t next(std::int32_t length, std::int32_t end) const {
    const auto at = std::ranges::upper_bound(cuts_, length, {}, &Cut::length);
    return at == cuts_.end() ? end : std::min(at->length, end);
  }
  bool contains(std::int32_t length) const { return next(length - 1, length + 1) == length; }

  /// Drops those up to `length` and returns the place of the one there.
  std::optional<SnapshotPlace> take(std::int32_t length) {
    std::optional<SnapshotPlace> place;
    const auto behind = std::ranges::upper_bound(cuts_, length, {}, &Cut::length);
    if (contains(length)) place = std::prev(behind)->place;
    cuts_.erase(cuts_.begin(), behind);
    return place;
  }

 private:
  std::vector<Cut> cuts_;
};

}  // namespace hyb
