#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/arena/arena.h"

namespace hyb::kernels {

/// Which handles of an arena exist, and at how many places each is mapped. The lowest free name is
/// given out first, so that handles created one after the other are neighbours. The checks throw
/// on broken rules: bugs of ours.
class HandleTable {
 public:
  HandleId add();
  void remove(HandleId handle);

  void map(std::span<const HandleId> handles);
  void unmap(HandleId handle);

  void check_exists(HandleId handle) const;
  void check_mapped(HandleId handle) const;
  void check_unmapped(HandleId handle) const;

  std::size_t held() const { return held_; }

 private:
  static constexpr std::int32_t free = -1;

  std::int32_t uses(HandleId handle) const;
  std::int32_t& uses_at(HandleId handle) { return uses_[static_cast<std::size_t>(index(handle))]; }

  std::vector<std::int32_t> uses_;  // places where a handle is mapped, or `free`
  std::size_t lowest_free_ = 0;     // nothing below it is free
  std::size_t held_ = 0;
};

}  // namespace hyb::kernels
