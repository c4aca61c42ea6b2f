#pragma once

#include <cstddef>
#include <string>

#include "kernels/device.h"

namespace hyb::kernels {

/// A card as this process sees it now.
struct Card {
  std::string name;
  int major, minor;  ///< compute capability
  int processors;    ///< streaming multiprocessors
  std::size_t memory_bytes, free_bytes;
  std::size_t l2_bytes;
  int driver_cuda, runtime_cuda;     ///< CUDA versions: 1000 * major + 10 * minor
  std::size_t shared_bytes_max = 0;  ///< the most shared memory of a block
  /// The lowest compute capability that this build's kernels run on, as 10 * major + minor.
  int kernels_min = 0;
  /// They say what the card can do at most at its highest clocks: bytes of memory, and FLOPs of
  /// bf16 products with f32 sums. Of cards that are sold at half rate and in full, the half rate.
  double bytes_per_s = 0, flops_per_s = 0;
};

/// One of the cards, whose number is that of CUDA (QueueOptions::card). Throws Error(usage) that
/// says what is missing: the build, a driver, a card.
Card card(int number = 0);

/// Returns the number of cards. Throws as card() does.
int card_count();

/// Says whether two cards can read and write each other's memory themselves, over NVLink or PCIe.
bool are_peers(int card, int other);

/// The unit in which the memory of a device can be mapped: a page of the system, on a card
/// typically 2 MiB.
std::size_t handle_bytes_min(Device device);

}  // namespace hyb::kernels
