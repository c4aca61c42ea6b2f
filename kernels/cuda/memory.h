#pragma once

#include <cstddef>
#include <span>

#include "kernels/card.h"
#include "kernels/cuda/stream.h"

namespace hyb::kernels::cuda {

/// Zeroed bytes on the current card, aligned to 256. Throws Error(memory) with the numbers when
/// the device has not enough.
std::byte* allocate(std::size_t bytes);
void release(std::byte* at) noexcept;

/// From the machine to the device; returns when it is there.
void upload(Stream& stream, std::byte* to, std::span<const std::byte> from);
/// From the device, after all earlier work of the stream.
void download(Stream& stream, std::span<std::byte> to, const std::byte* from);
/// On the device, in the stream's order; the ranges do not overlap.
void copy(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes);

/// The card that this thread's calls of CUDA are for from now on; before, the first one. Throws
/// Error(usage) where there is no such card.
void use_card(int card);

/// Says what kernels::card(), card_count() and are_peers() say.
Card card(int card);
int card_count();
bool are_peers(int card, int other);

}  // namespace hyb::kernels::cuda
