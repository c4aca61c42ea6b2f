#include "core/text/jinja/meter.h"

#include <algorithm>
#include <string>

#include "core/text/jinja/fault.h"

namespace hyb::jinja {
namespace {

/// Offsets into text are 32 bits wide.
constexpr std::size_t addressable_bytes = std::size_t{2} << 30;
constexpr std::int64_t steps_between_checks = 4096;

[[noreturn]] void reached(const std::string& what) {
  throw Fault("the template reached a limit: " + what, FaultKind::limit);
}

}  // namespace

Meter::Meter(const RenderLimits& limits)
    : limits_(limits), start_(std::chrono::steady_clock::now()) {
  limits_.memory_bytes_max = std::min(limits_.memory_bytes_max, addressable_bytes);
  limits_.output_bytes_max = std::min(limits_.output_bytes_max, addressable_bytes);
  next_check_ = std::min(steps_between_checks, limits_.steps_max);
}

void Meter::hold(std::size_t bytes) {
  expect(bytes);
  held_bytes_ += bytes;
}

void Meter::expect(std::size_t bytes) const {
  if (bytes > limits_.memory_bytes_max || held_bytes_ > limits_.memory_bytes_max - bytes) {
    reached(std::to_string(limits_.memory_bytes_max) + " bytes of memory");
  }
}

void Meter::check_output(std::size_t bytes) const {
  if (bytes > limits_.output_bytes_max) {
    reached(std::to_string(limits_.output_bytes_max) + " bytes of output");
  }
}

void Meter::enter() {
  if (depth_ >= limits_.depth_max)
    reached(std::to_string(limits_.depth_max) + " levels of nesting");
  ++depth_;
}

void Meter::check() {
  if (steps_ >= limits_.steps_max) reached(std::to_string(limits_.steps_max) + " steps");
  if (std::chrono::steady_clock::now() - start_ > limits_.time_max) {
    reached(std::to_string(limits_.time_max.count()) + " ms of time");
  }
  next_check_ = std::min(steps_ + steps_between_checks, limits_.steps_max);
}

}  // namespace hyb::jinja
