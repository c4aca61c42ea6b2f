#pragma once

#include <cstddef>
#include <span>

#include "kernels/queue.h"

namespace hyb::kernels {

/// Bytes from the machine's memory to the queue's device; `from` may go when it returns.
void upload(Queue& queue, std::byte* to, std::span<const std::byte> from);

/// Bytes of the queue's device, as all work before left them, to the machine's memory.
void download(Queue& queue, std::span<std::byte> to, const std::byte* from);

/// On the queue's device, in its order. The ranges do not overlap.
void copy(Queue& queue, std::byte* to, const std::byte* from, std::size_t bytes);

/// After the last large upload for a while, such as that of weights: what they went through on
/// their way goes back to the machine.
void end_uploads(Queue& queue);

/// Returns when all work of the queue is done.
void wait(Queue& queue);

/// Says whether wait() would return, or throw, at once.
bool is_done(Queue& queue);

}  // namespace hyb::kernels
