#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace hyb {

/// Units of one kind in use.
struct UnitUsage {
  std::int64_t units = 0;
  std::size_t bytes = 0;
};

/// Who has the memory's bytes at a moment. total() is the budget, to the byte.
struct PoolUsage {
  struct Group {
    std::string_view kind;
    UnitUsage pages;
  };
  std::vector<Group> groups;
  UnitUsage live_slots;             ///< a sequence reads or writes them
  UnitUsage snapshot_slots;         ///< only checkpoints hold them
  UnitUsage packed;                 ///< int8 snapshots
  std::size_t idle_bytes = 0;       ///< free units in superblocks that are in use
  std::size_t free_bytes = 0;       ///< free superblocks
  std::size_t remainder_bytes = 0;  ///< of superblocks in use, what their view has no unit for

  std::int32_t superblocks = 0, superblocks_free = 0;
  std::int32_t superblocks_idle = 0;      ///< of the free ones: with the bytes of their last owner
  std::int32_t superblocks_withheld = 0;  ///< of the free ones: the device has no memory for them
  std::int64_t owner_changes = 0;         ///< superblocks that went from one view to another
  std::int64_t compacted_units = 0;       ///< copied to empty a superblock

  std::size_t total() const;
};

}  // namespace hyb
