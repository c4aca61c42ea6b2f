#include "kernels/arena/arena.h"

#include <algorithm>

#include "core/base/error.h"

namespace hyb::kernels {

HandleId HandleTable::add() {
  const auto found =
      std::find(uses_.begin() + static_cast<std::ptrdiff_t>(lowest_free_), uses_.end(), free);
  const auto place = static_cast<std::size_t>(found - uses_.begin());
  if (found == uses_.end()) uses_.push_back(free);
  uses_[place] = 0;
  lowest_free_ = place + 1;
  ++held_;
  return static_cast<HandleId>(place);
}

void HandleTable::remove(HandleId handle) {
  check_unmapped(handle);
  uses_at(handle) = free;
  lowest_free_ = std::min(lowest_free_, static_cast<std::size_t>(index(handle)));
  --held_;
}

void HandleTable::map(std::span<const HandleId> handles) {
  for (const HandleId handle : handles) check_exists(handle);
  for (const HandleId handle : handles) ++uses_at(handle);
}

void HandleTable::unmap(std::span<const HandleId> handles) {
  check_mapped(handles);
  for (const HandleId handle : handles) --uses_at(handle);
}

void HandleTable::check_exists(HandleId handle) const {
  require(uses(handle) != free, "arena: a handle that exists");
}

void HandleTable::check_mapped(std::span<const HandleId> handles) const {
  for (const HandleId handle : handles) {
    require(uses(handle) > 0, "arena: only what is mapped can be unmapped");
  }
}

void HandleTable::check_unmapped(HandleId handle) const {
  require(uses(handle) == 0, "arena: a handle is released once, when it is mapped nowhere");
}

std::int32_t HandleTable::uses(HandleId handle) const {
  const auto place = static_cast<std::size_t>(index(handle));
  return index(handle) >= 0 && place < uses_.size() ? uses_[place] : free;
}

}  // namespace hyb::kernels
