#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/engine/runner.h"
#include "kernels/buffer.h"
#include "models/geometry.h"

namespace hyb::models {

/// The bytes behind core's pages and slots: one arena per attention layer, where a page id means
/// the same page in each, and one slab of slots, where each slot holds all recurrent layers of one
/// sequence back to back.
class Store {
 public:
  /// Throws Error(memory) when the machine has not so much.
  Store(kernels::Device device, const Geometry& geometry, std::int32_t pages, std::int32_t slots);

  /// The arena of an attention layer, by attention ordinal: [pages, page elements], KV type.
  kernels::Tensor arena(std::size_t attention) const { return arenas_[attention]; }

  /// A recurrent layer's part of every slot, by recurrent ordinal.
  kernels::Tensor windows(std::size_t recurrent) const { return windows_[recurrent]; }
  kernels::Tensor states(std::size_t recurrent) const { return states_[recurrent]; }

  /// Copies pages and slots, in the order given.
  void carry_out(std::span<const Order> orders) const;

  std::size_t bytes() const { return pages_.bytes() + slots_.bytes(); }

 private:
  kernels::Buffer pages_, slots_;
  std::size_t slot_bytes_;
  std::vector<kernels::Tensor> arenas_, windows_, states_;
};

}  // namespace hyb::models
