#pragma once

namespace hyb::kernels::testing {

/// Calls body() for every size of shared memory that kernels choose their tiles by. A card has its
/// own; the emulator's header of this name, which shadows this one in its build, has several.
template <typename Body>
void on_every_card(Body&& body) {
  body();
}

}  // namespace hyb::kernels::testing
