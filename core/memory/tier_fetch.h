#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/ids.h"
#include "core/io/transfer_queue.h"
#include "core/memory/memory.h"
#include "core/memory/prefix_node.h"

namespace hyb {

enum class FetchId : std::int64_t {};

/// A page or slot that is being read.
struct FetchedUnit {
  ViewId view;
  std::int32_t page;  ///< of the sequence, for a view of pages; else 0
  std::uint64_t sum;  ///< checksum that it was stored with
  TransferId transfer;
};

/// A snapshot on its way back from a tier. Nothing of the pool is held for it.
struct TierFetch {
  FetchId id{};
  std::vector<TokenId> key;
  Precision precision = Precision::exact;
  SnapshotPlace place = SnapshotPlace::branch;
  std::vector<FetchedUnit> units{};  ///< in the order in which they come
  std::size_t units_come = 0;        ///< so many of them are there
};

}  // namespace hyb
