#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/ids.h"
#include "kernels/arena/arena.h"
#include "kernels/arena/prefaulter.h"

namespace hyb::kernels {

/// Way in which physical memory follows the owners of superblocks.
enum class MapMode : std::uint8_t {
  flip,   ///< mapped into every view at the start: a change of owner makes no system call
  remap,  ///< mapped into the owner's view alone, from its first owner on
  flat,   ///< as remap, but the first owner of a superblock stays its owner
};

struct SuperblockMapOptions {
  MapMode mode = MapMode::flip;
  bool strict =
      false;  ///< in mode flip too, only the owner's view is mapped: a stray access faults
  /// A new owner finds all bits set: NaN in every float type. Costs the writes, and when one is
  /// refused the bytes of the old owner. For debugging.
  bool poison = false;
  /// Processes that are forked from now on use the same memory: the CPU's, where flip then is
  /// remap.
  bool is_shared = false;
  int card = 0;                 ///< on a card: which one
  std::vector<int> peers = {};  ///< other cards that read and write this memory themselves
};

/// Sizes of the memory and of the views of it; plan_superblocks() in core/memory/pool/layout.h
/// makes them. Sizes are whole handles.
struct SuperblockShape {
  std::size_t handle_bytes;
  std::size_t superblock_bytes;
  std::int32_t superblocks;
  /// Says how many bytes of a superblock are mapped in each plane of each view; together no more
  /// than superblock_bytes. What a view leaves over at the end of a superblock is not mapped in it.
  std::vector<std::vector<std::size_t>> plane_bytes;

  std::size_t views_with_memory() const;
};

/// Physical memory in superblocks, and the addresses where the views show it. A plane is one range
/// of addresses: superblock b is at b * plane_bytes, and shows there the bytes that follow
/// those of the planes before it. So the planes of one view never overlap in memory, and units that
/// divide plane_bytes evenly have linear addresses.
///
/// At the start no superblock has an owner. One thread calls, while no kernel runs unless a
/// function says otherwise.
class SuperblockMap {
 public:
  /// Handles of an arena are made as large as all planes allow, so that the driver is called
  /// seldom: this size, in bytes, is a multiple of shape.handle_bytes.
  static std::size_t handle_bytes(const SuperblockShape& shape);

  /// Mappings that may be needed at once.
  static std::size_t mappings_needed(const SuperblockShape& shape,
                                     const SuperblockMapOptions& options);

  /// The arena's handles have handle_bytes(shape); it aliases where memory is mapped into several
  /// views at once. Throws Error(memory) when it cannot be mapped: too many mappings for the
  /// system, no addresses, in mode flip no memory.
  SuperblockMap(std::unique_ptr<Arena> arena, SuperblockShape shape,
                const SuperblockMapOptions& options);
  SuperblockMap(const SuperblockMap&) = delete;
  SuperblockMap& operator=(const SuperblockMap&) = delete;
  ~SuperblockMap();

  /// First address of a plane.
  std::byte* plane(ViewId view, std::size_t plane) const;

  /// Makes `view` the owner. The content of the superblock means nothing to a new owner. Backs the
  /// superblock with memory again when that was given back. When it throws Error(memory), the owner
  /// and what it wrote are as before, and the call may be repeated.
  void own(SuperblockId superblock, ViewId view);

  /// Says whether the superblock is backed by memory, so that own() needs no more. Where it is not
  /// and `may_create`, memory is requested from the device; false: it has not enough now, and
  /// nothing has changed. Kernels may run meanwhile.
  bool commit(SuperblockId superblock, bool may_create);

  /// Says whether own() maps or writes anything: then no work of a card may be under way.
  bool own_needs_quiet() const { return !maps_all() || options_.poison; }

  /// Returns the memory of a superblock whose content is not needed to the machine. It has no
  /// owner then, also when this throws Error(memory), and touching it faults.
  void give_back(SuperblockId superblock);

  /// Starts to fault in the memory of a superblock that has an owner, on a separate thread. The
  /// owner may use it at once. It ends with the ownership.
  void prefault(SuperblockId superblock);
  /// Until all that was started is done.
  void wait_for_prefault() { prefaulter_.wait(); }

  ViewId owner(SuperblockId superblock) const { return superblocks_[place(superblock)].owner; }

  /// Physical memory in handles. On the CPU untouched ones hold none yet.
  std::size_t bytes_backed() const { return arena_->bytes_held(); }

 private:
  struct Plane {
    std::byte* first;
    std::size_t handles;  // of a superblock
    std::size_t bytes;    // of the whole range
  };
  struct View {
    std::vector<Plane> planes;
    std::size_t handles;  // of a superblock, all planes
  };
  struct Superblock {
    ViewId owner = no_view;
    std::vector<HandleId> handles;
    std::vector<std::size_t> mapped;  // handles, from the first on, by view
  };

  void check_shape() const;
  void check_mappings() const;
  void reserve();
  void close() noexcept;

  std::size_t handles_per_superblock() const;
  bool maps_all() const { return options_.mode == MapMode::flip && !options_.strict; }
  void create(Superblock& superblock, std::size_t handles);
  void map(std::int32_t superblock, std::size_t view);
  void unmap(std::int32_t superblock, std::size_t view);
  void map_whole(std::size_t view);
  void unmap_whole(std::size_t view);
  void show(std::int32_t superblock, ViewId view);
  void restore(std::int32_t superblock) noexcept;
  void drop(std::int32_t superblock);
  void poison(std::int32_t superblock, ViewId view);

  std::size_t place(SuperblockId superblock) const;

  std::unique_ptr<Arena> arena_;
  SuperblockShape shape_;
  SuperblockMapOptions options_;
  std::vector<View> views_;
  std::vector<Superblock> superblocks_;
  Prefaulter prefaulter_;
};

}  // namespace hyb::kernels
