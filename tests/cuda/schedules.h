#pragma once

namespace hyb::kernels::testing {

/// Calls body(name) under every schedule that an op's law is checked in. A card has its own; the
/// emulator's header of this name, which shadows this one in its build, has several.
template <typename Body>
void in_every_schedule(Body&& body) {
  body("the card's");
}

}  // namespace hyb::kernels::testing
