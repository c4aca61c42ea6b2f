#pragma once

#include <string>
#include <vector>

#include "tests/cuda_emulator/emulator.h"

namespace hyb::kernels::testing {

/// Calls body(name) under every schedule that an op's law is checked in.
template <typename Body>
void in_every_schedule(Body&& body) {
  using emulator::Order;
  const std::vector<std::pair<std::string, emulator::Schedule>> schedules = {
      {"first warp ahead", {.order = Order::first_warp_ahead}},
      {"last warp ahead", {.order = Order::last_warp_ahead}},
      {"random", {.order = Order::random, .seed = 11}}};
  for (const auto& [name, schedule] : schedules) {
    emulator::reset();
    emulator::set_schedule(schedule);
    body(name);
  }
  emulator::reset();
}

}  // namespace hyb::kernels::testing
