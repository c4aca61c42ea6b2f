#include "kernels/card_copies.h"

#include "core/base/error.h"
#include "kernels/cuda/card_copies.h"

namespace hyb::kernels {

std::unique_ptr<CardCopies> make_card_copies(Queue& from, Queue& to, bool are_peers) {
  require(from.device() == Device::cuda && to.device() == Device::cuda && from.card() != to.card(),
          "card copies: between two cards");
  if constexpr (has_cuda) return cuda::make_card_copies(from.stream(), to.stream(), are_peers);
  return nullptr;
}

}  // namespace hyb::kernels
