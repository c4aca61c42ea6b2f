#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/engine/runner.h"
#include "kernels/buffer.h"
#include "models/geometry.h"

namespace hyb::models {

/// The bytes behind core's pages and slots: one arena per attention layer, where a page id means
/// the same page in each layer of its group, and one slab of slots, where each slot holds all
/// recurrent layers of one sequence back to back.
class Store {
 public:
  /// The layout is cut for the geometry: one group of full attention, no packed snapshots. Throws
  /// Error(memory) when the machine has not so much.
  Store(kernels::Device device, const Geometry& geometry, const MemoryLayout& layout);

  /// The arena of an attention layer, by attention ordinal: [pages, page elements], KV type.
  kernels::Tensor arena(std::size_t attention) const { return arenas_[attention]; }
  /// The page group of an attention layer.
  std::size_t group(std::size_t) const { return 0; }

  /// A recurrent layer's part of every slot, by recurrent ordinal.
  kernels::Tensor windows(std::size_t recurrent) const { return windows_[recurrent]; }
  kernels::Tensor states(std::size_t recurrent) const { return states_[recurrent]; }

  /// Copies pages and slots, in the order given.
  void carry_out(std::span<const Order> orders) const;

  /// The bytes of a unit: of a page layer by layer.
  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) const;
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) const;

  std::size_t bytes() const { return layout_.store_bytes(); }

 private:
  void copy_page(PageId from, PageId to) const;
  std::byte* slot(std::int32_t slot) const;

  MemoryLayout layout_;
  std::vector<kernels::Buffer> pages_;
  kernels::Buffer slots_;
  std::vector<kernels::Tensor> arenas_, windows_, states_;
};

/// The layout of so many pages and slots of a model, for ever.
MemoryLayout flat_memory(const Geometry& geometry, std::int32_t pages, std::int32_t slots);

}  // namespace hyb::models
