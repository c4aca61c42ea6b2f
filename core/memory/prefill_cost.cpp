#include "core/memory/prefill_cost.h"

#include "core/base/error.h"

namespace hyb {

PrefillCost prefill_cost_of_flops(double linear, double square, double flops_per_second) {
  require(linear >= 0 && square >= 0 && linear + square > 0 && flops_per_second > 0,
          "prefill cost: FLOPs and their speed are positive");
  return {.seconds_per_token = linear / flops_per_second,
          .seconds_per_token_squared = square / flops_per_second};
}

}  // namespace hyb
