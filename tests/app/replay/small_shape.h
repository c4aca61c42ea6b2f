#pragma once

#include <cstdint>

#include "app/replay/shape.h"

namespace hyb::testing {

/// Sizes that are easy to count with: a token of keys and values is one byte.
inline app::ReplayShape small_shape(std::int64_t state_bytes = 100) {
  app::ReplayShape shape;
  shape.name = "small";
  shape.kv_bytes_per_token = 1;
  shape.state_bytes = state_bytes;
  shape.state_bytes_int8 = state_bytes / 4;
  shape.attention_layers = 1;
  shape.recurrent_layers = state_bytes > 0 ? 1 : 0;
  shape.flops = {1, 0.001};
  shape.seconds = {1e-3, 1e-6};
  return shape;
}

}  // namespace hyb::testing
