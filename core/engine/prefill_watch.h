#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "core/engine/runner.h"
#include "core/memory/prefix/prefill_cost.h"

namespace hyb {

/// Watches the steps of an engine and reports when the cost of prefill differs from the one in use.
class PrefillWatch {
 public:
  /// `cost` is in use at first; lengths up to `length_max` matter.
  PrefillWatch(const PrefillCost& cost, std::int32_t chunk_tokens, std::int32_t length_max)
      : meter_(cost, chunk_tokens), used_(cost), length_max_(length_max) {}

  /// Takes the duration of a step. Returns the cost to use from now on, when it is more than 10 %
  /// off: rarely, since the change costs time. Steps of few tokens, or of many single ones, say
  /// nothing about prefill.
  std::optional<PrefillCost> ran(const Step& step, std::chrono::duration<double> elapsed);

 private:
  PrefillMeter meter_;
  PrefillCost used_;
  std::int32_t length_max_;
};

}  // namespace hyb
