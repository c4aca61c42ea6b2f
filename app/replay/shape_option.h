#pragma once

#include <string>

#include "app/environment.h"
#include "core/replay/shape.h"

namespace hyb::app {

/// How bytes and seconds are counted.
struct ShapeOptions {
  std::string kv_dtype = "bf16";     ///< of keys and values: bf16, f32, fp8
  std::string state_dtype = "auto";  ///< of recurrent matrices: auto (the model's), f32, bf16
  double flops_per_second = 4e14;    ///< of prefill
};

/// The shape that --shape names: "marconi-7b" with overrides (ssm=, attn=, mlp=, d=, d_state=), a
/// published checkpoint, or what MODEL may be elsewhere: a preset, a folder, a config.json.
/// Overrides of other shapes: kv= (bytes per token), state= (bytes), int8= (bytes of a packed
/// snapshot). Throws Error(usage) that lists what is known, Error(model) for a bad config.json.
ReplayShape parse_shape(const std::string& text, const ShapeOptions& options,
                        const Environment& environment);

}  // namespace hyb::app
