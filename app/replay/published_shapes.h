#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "core/replay/shape.h"

namespace hyb::app {

/// Sizes of a published checkpoint that has no config.json inside the binary.
struct PublishedShape {
  std::string_view name;
  // Recurrent layers: heads x rows x columns elements each, and windows of conv_width - 1.
  std::int32_t recurrent_layers, heads, rows, columns, conv_channels, conv_width;
  // Attention layers with a memory of all positions; kv_elements per token and layer.
  std::int32_t attention_layers, kv_elements, query_heads, head_dim;
  double active_parameters;  ///< that a token goes through
};

std::span<const PublishedShape> published_shapes();

/// Bytes with elements of keys and values, and of matrices, of so many bytes; windows are bf16.
ReplayShape shape_of(const PublishedShape& published, double kv_element_bytes,
                     double state_element_bytes, double flops_per_second);

}  // namespace hyb::app
