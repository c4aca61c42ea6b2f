#pragma once

#include <memory>

#include "kernels/card_copies.h"
#include "kernels/cuda/stream.h"

namespace hyb::kernels::cuda {

std::unique_ptr<CardCopies> make_card_copies(Stream& from, Stream& to, bool are_peers);

}  // namespace hyb::kernels::cuda
