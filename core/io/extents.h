#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace hyb {

/// Consecutive sectors.
struct Extent {
  std::uint32_t first, count;
};

inline constexpr std::size_t sector_bytes = 4096;

/// Which sectors of a storage are free. What is asked for is given in as few pieces as there are:
/// whatever is free can be had, in pieces if need be. O(log n) per piece.
class Extents {
 public:
  explicit Extents(std::uint32_t sectors);

  /// Empty, and nothing taken: there are not so many.
  std::optional<std::vector<Extent>> take(std::uint32_t sectors);
  void give_back(std::span<const Extent> extents);

  std::uint32_t total() const { return total_; }
  std::uint32_t free() const { return free_; }

 private:
  void add(Extent extent);
  void remove(Extent extent);

  std::uint32_t total_, free_ = 0;
  std::map<std::uint32_t, std::uint32_t> by_place_;            // first -> count
  std::set<std::pair<std::uint32_t, std::uint32_t>> by_size_;  // (count, first)
};

}  // namespace hyb
