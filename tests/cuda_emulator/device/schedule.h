#pragma once

#include <cstdint>

namespace emulator {

/// In which order threads run. A kernel that is right gives the same answer in every one.
enum class Order : std::uint8_t {
  first_warp_ahead,  ///< the lowest warp that can run continues until it cannot; lanes likewise
  last_warp_ahead,   ///< the highest
  permuted,          ///< all that can run take turns, in an order drawn from the seed
  random,            ///< a few blocks at once; what runs next, and how long, is drawn from the seed
};

struct Schedule {
  Order order = Order::first_warp_ahead;
  std::uint64_t seed = 1;
  /// Kernels that may start early do so as early as the rules allow; else one after the other.
  bool early_start = true;
  /// Threads of the operating system for one launch; 0: as many as the machine has cores.
  int workers = 0;
};

}  // namespace emulator
