#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/machine/environment.h"
#include "core/memory/pool/memory.h"
#include "core/memory/prefix/prefill_cost.h"
#include "models/geometry.h"

namespace hyb::app {

/// The attention layers of one reach that ends, all together.
struct WindowLayers {
  models::Reach reach;  ///< a window or a chunk
  std::int64_t kv_bytes_per_token;

  /// Returns the most bytes of a sequence.
  std::int64_t bytes() const { return kv_bytes_per_token * reach.tokens; }
};

/// A model as a replay sees it: bytes and costs, no layers.
struct ReplayShape {
  std::string name;
  std::int64_t kv_bytes_per_token = 0;  ///< attention layers that see everything; 0: there is none
  std::vector<WindowLayers> windows = {};  ///< one for each reach
  std::int64_t state_bytes = 0;            ///< of one sequence, conv windows included; 0: no state
  std::int64_t state_bytes_int8 = 0;       ///< the same as an int8 snapshot
  std::int64_t conv_bytes = 0;             ///< of the state
  std::int32_t attention_layers = 0;       ///< that see everything
  std::int32_t recurrent_layers = 0;
  /// KV of a pure transformer with as many parameters; 0: not known.
  std::int64_t transformer_kv_bytes_per_token = 0;
  PrefillCost flops{};
  PrefillCost seconds{};

  bool has_state() const { return state_bytes > 0; }
  /// Returns the most window bytes of a sequence.
  std::int64_t window_bytes() const;
  std::int64_t snapshot_bytes(Precision precision) const {
    return precision == Precision::int8 ? state_bytes_int8 : state_bytes;
  }
};

/// The hybrid 7B model of the Marconi paper (Pan et al. 2025): counts of layers and widths.
struct MarconiModel {
  std::int32_t ssm = 24;
  std::int32_t attention = 4;
  std::int32_t mlp = 28;
  std::int32_t width = 4096;
  std::int32_t state_dim = 128;
};

/// The paper's model of bytes and FLOPs, in 16-bit numbers, for l tokens and width d:
///   attention 8 l d^2 + 4 l^2 d FLOPs, 4 l d bytes of keys and values
///   mlp       16 l d^2
///   ssm       12 l d^2 + 16 l d n + 10 l d, state 2 d n + 8 (2 d + 2 n) bytes (matrix, conv
///   window)
/// Seconds are FLOPs at `flops_per_second`. An int8 snapshot holds a byte per element of the matrix
/// and a 16-bit scale per row, its window as it is.
ReplayShape marconi_shape(const MarconiModel& model, double flops_per_second);

/// Sizes of a published checkpoint that has no config.json inside the binary.
struct PublishedShape {
  std::string_view name;
  // Recurrent layers: heads x rows x columns elements each, and windows of conv_width - 1.
  std::int32_t recurrent_layers, heads, rows, columns, conv_channels, conv_width;
  // Attention layers with a memory of all positions; kv_elements per token and layer.
  std::int32_t attention_layers, kv_elements, query_heads, head_dim;
  double active_parameters;  ///< used by each token
};

std::span<const PublishedShape> published_shapes();

/// Bytes from the sizes of elements of keys and values, and of matrices; windows are bf16.
ReplayShape shape_of(const PublishedShape& published, double kv_element_bytes,
                     double state_element_bytes, double flops_per_second);

/// Options of how bytes and seconds are counted.
struct ShapeOptions {
  DType kv_dtype = DType::bf16;           ///< of keys and values: bf16, f32, fp8
  std::optional<DType> state_dtype = {};  ///< of recurrent matrices; none: the model's
  double flops_per_second = 4e14;         ///< of prefill
};

/// The shape that --shape names: "marconi-7b" with overrides (ssm=, attn=, mlp=, d=, d_state=), a
/// published checkpoint, or what MODEL may be elsewhere: a preset, a folder, a config.json.
/// Overrides of other shapes: kv= (bytes per token), state= (bytes), int8= (bytes of a packed
/// snapshot). Throws Error(usage) that lists what is known, Error(model) for a bad config.json.
ReplayShape parse_shape(const std::string& text, const ShapeOptions& options,
                        const Environment& environment);

}  // namespace hyb::app
