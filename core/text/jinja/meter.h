#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "core/text/chat_template.h"

namespace hyb::jinja {

/// Counts what a rendering costs and throws Fault(limit) past a RenderLimits.
class Meter {
 public:
  explicit Meter(const RenderLimits& limits);

  /// One step is about the work of one expression, one item, or 64 bytes of text.
  void step(std::size_t steps = 1) {
    steps_ += static_cast<std::int64_t>(steps);
    if (steps_ >= next_check_) check();
  }
  void step_bytes(std::size_t bytes) { step(bytes / 64); }

  /// Memory held; what is never dropped lives until the rendering ends.
  void hold(std::size_t bytes);
  void drop(std::size_t bytes) { held_bytes_ -= bytes; }
  /// Throws if holding that many more bytes would go past the limit.
  void expect(std::size_t bytes) const;

  void check_output(std::size_t bytes) const;

  void enter();
  void leave() { --depth_; }

 private:
  void check();

  RenderLimits limits_;
  std::int64_t steps_ = 0;
  std::int64_t next_check_ = 0;
  std::size_t held_bytes_ = 0;
  int depth_ = 0;
  std::chrono::steady_clock::time_point start_;
};

/// One level of nesting for the life of the object.
class Nested {
 public:
  explicit Nested(Meter& meter) : meter_(meter) { meter.enter(); }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  ~Nested() { meter_.leave(); }

 private:
  Meter& meter_;
};

}  // namespace hyb::jinja
