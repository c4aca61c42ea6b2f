#pragma once

#include <memory>

#include "kernels/cuda/stream.h"
#include "kernels/side_copies.h"

namespace hyb::kernels::cuda {

std::unique_ptr<SideCopies> make_side_copies(Stream& stream, const SideCopyRoom& room);

}  // namespace hyb::kernels::cuda
