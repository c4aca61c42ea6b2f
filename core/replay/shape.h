#pragma once

#include <cstdint>
#include <string>

namespace hyb {

/// Cost of l tokens from nothing: linear l + square l^2, in FLOPs or in seconds. What tokens
/// [0, h) save of a longer prompt is of(h).
struct LengthCost {
  double linear = 0;
  double square = 0;

  double of(std::int64_t tokens) const {
    const auto l = static_cast<double>(tokens);
    return linear * l + square * l * l;
  }
};

enum class SnapshotFormat : std::uint8_t { exact, int8 };

/// What a replay knows of a model: bytes and costs, no layers.
struct ReplayShape {
  std::string name;
  std::int64_t kv_bytes_per_token = 0;  ///< all attention layers; 0: there is none
  std::int64_t state_bytes = 0;         ///< of one sequence, conv windows included; 0: no state
  std::int64_t state_bytes_int8 = 0;    ///< the same as an int8 snapshot
  std::int64_t conv_bytes = 0;          ///< of the state
  std::int32_t attention_layers = 0;
  std::int32_t recurrent_layers = 0;
  /// KV of a pure transformer with as many parameters; 0: not known.
  std::int64_t transformer_kv_bytes_per_token = 0;
  LengthCost flops{};
  LengthCost seconds{};

  bool has_state() const { return state_bytes > 0; }
  std::int64_t snapshot_bytes(SnapshotFormat format) const {
    return format == SnapshotFormat::int8 ? state_bytes_int8 : state_bytes;
  }
};

}  // namespace hyb
