#pragma once

#include <cstddef>
#include <optional>

#include "core/base/dtype.h"
#include "kernels/probe.h"

namespace hyb::app {

/// What the machine could do in the same minutes: the best of several passes.
struct Ceilings {
  double bytes_per_s = 0;  ///< 0: there was no room for the read probe
  double flops_per_s = 0;
};

/// The probes of kernels/probe.h, to be run between the repetitions of a measurement.
class Probes {
 public:
  static constexpr std::size_t read_bytes = std::size_t{1} << 30;

  /// FLOPs are those of products of `dtype`. Without room for `read_bytes` nothing is read.
  Probes(kernels::Queue& queue, DType dtype, bool has_room);

  void forget() { best_ = {}; }
  void run();
  const Ceilings& best() const { return best_; }

 private:
  kernels::Queue* queue_;
  DType dtype_;
  std::optional<kernels::ReadProbe> reader_;
  Ceilings best_;
};

}  // namespace hyb::app
