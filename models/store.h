#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/engine/runner.h"
#include "kernels/arena/superblock_map.h"
#include "kernels/queue.h"
#include "kernels/side_copies.h"
#include "kernels/tensor.h"
#include "models/geometry.h"
#include "models/memory_layout.h"

namespace hyb::models {

/// The physical memory of a store. On a card this takes a while for many gigabytes, and may run on
/// a separate thread while weights are read.
std::unique_ptr<kernels::SuperblockMap> map_superblocks(
    kernels::Device device, const StoreLayout& memory,
    const kernels::SuperblockMapOptions& options);

/// The bytes of core's pages, slots and packed snapshots. Each attention layer has an arena, where
/// a page id means the same page in each layer of its group; slots follow each other, each with all
/// recurrent layers of one sequence. Bytes are valid only while their superblock belongs to the
/// view.
class Store {
 public:
  /// The layout is cut for the geometry; with fixed superblocks the mode is `flat`, whatever
  /// `options` says. The queue outlives the store. `superblocks` are the result of map_superblocks
  /// for the same arguments, or null: then they are made here. Throws Error(memory) when there is
  /// not enough memory.
  Store(kernels::Queue& queue, const Geometry& geometry, const StoreLayout& memory,
        const kernels::SuperblockMapOptions& options = {},
        std::unique_ptr<kernels::SuperblockMap> superblocks = nullptr);
  /// The same memory for another queue on the same device; `first` outlives this. Owners change
  /// through the first store alone: this one carries out no orders.
  Store(kernels::Queue& queue, const Store& first);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// The arena of an attention layer, by attention ordinal: [pages, page elements], KV type.
  kernels::Tensor arena(std::size_t attention) const { return arenas_[attention]; }
  /// The page group of an attention layer.
  std::size_t group(std::size_t attention) const { return groups_[attention]; }

  /// A recurrent layer's part of every slot, by recurrent ordinal.
  kernels::Tensor windows(std::size_t recurrent) const { return windows_[recurrent]; }
  kernels::Tensor states(std::size_t recurrent) const { return states_[recurrent]; }
  /// Its part of every ring: [rings, entries, ring width]; empty: there are none.
  kernels::Tensor rings(std::size_t recurrent) const {
    return rings_.empty() ? kernels::Tensor() : rings_[recurrent];
  }

  /// Copies, packs and changes owners, in the order given; AdvanceSlot is a decoder's. Memory that
  /// is ordered ahead is faulted in while later steps run. Throws Error(memory) when the system has
  /// no memory for a new owner; the orders after it are then not carried out.
  void carry_out(std::span<const Order> orders);

  /// Commits as Runner::commit does.
  bool commit(SuperblockId superblock, bool may_create) const {
    return map_->commit(superblock, may_create);
  }

  /// The bytes of a unit, those of a page layer by layer. The padding of a slot reads as zeros.
  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) const;
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) const;
  /// The same on the CPU by the calling thread alone, beside the queue's work.
  void read_beside(ViewId view, std::int32_t unit, std::span<std::byte> bytes) const;
  void write_beside(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) const;
  /// Writes as write() does, beside the queue's work.
  void start_write(kernels::SideWrite& staged, ViewId view, std::int32_t unit) const;
  /// Finds the bytes of a unit: in how many parts each of a view lies, and one of these.
  std::size_t parts(ViewId view) const;
  std::span<std::byte> part(ViewId view, std::int32_t unit, std::size_t part) const;
  /// Reads as read() does, beside the queue's work; null: the copies have no room.
  std::unique_ptr<PendingBytes> start_read(kernels::SideCopies& copies, ViewId view,
                                           std::int32_t unit) const;

  /// The pools' budget, and how much of it is backed by memory now (less in mode remap, and after
  /// idle superblocks were released).
  std::size_t bytes() const { return memory_.layout.store_bytes(); }
  std::size_t bytes_backed() const { return map_->bytes_backed(); }

 private:
  /// Units of one size, one after the other; a page has one part per layer.
  struct Rows {
    std::byte* first;  ///< where unit 0 is, or would be
    std::size_t stride;
    std::size_t bytes;  ///< without padding
    std::byte* operator[](std::int32_t unit) const {
      return first + static_cast<std::size_t>(unit) * stride;
    }
  };

  void own_fixed();
  Rows rows(ViewId view, std::size_t plane, std::size_t stride, std::size_t bytes) const;
  void add_group(const Geometry& geometry, std::size_t group);
  void add_slots(const Geometry& geometry);
  void add_rings(const Geometry& geometry);
  std::int32_t units_end(ViewId view) const;

  void copy(const UnitCopy& order);
  void pack(const PackSlot& order);
  void unpack(const UnpackSlot& order);
  void change(const ChangeOwner& order);
  kernels::Tensor unit(ViewId view, std::int32_t unit) const;
  /// Calls copy(part of the unit, its place in `bytes`) for each; returns how many bytes these
  /// have.
  template <typename Byte, typename Copy>
  std::size_t each_part(ViewId view, std::int32_t unit, std::span<Byte> bytes,
                        const Copy& copy) const;
  template <typename Copy>
  void read_by(ViewId view, std::int32_t unit, std::span<std::byte> bytes, const Copy& copy) const;

  kernels::Queue& queue_;
  StoreLayout memory_;
  DType state_dtype_;
  std::unique_ptr<kernels::SuperblockMap> own_map_;  ///< null: it is another store's
  kernels::SuperblockMap* map_;
  std::vector<std::vector<Rows>> rows_;  // by view, then plane
  std::vector<std::size_t> groups_;      // by attention ordinal, as arenas_
  std::vector<kernels::Tensor> arenas_, windows_, states_, rings_;
};

}  // namespace hyb::models
