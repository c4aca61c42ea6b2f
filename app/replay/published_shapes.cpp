#include "app/replay/published_shapes.h"

namespace hyb::app {

std::span<const PublishedShape> published_shapes() {
  static constexpr PublishedShape table[] = {
      // name, recurrent layers, heads, rows, columns, conv channels, conv width,
      //       attention layers, kv elements, query heads, head dim, active parameters
      {"bamba-9b", 29, 128, 64, 128, 8448, 4, 3, 2048, 32, 128, 9.3e9},
      {"falcon-h1-0.5b", 36, 24, 64, 128, 1792, 4, 36, 256, 8, 64, 0.45e9},
      {"falcon-h1-1.5b", 24, 48, 64, 256, 3584, 4, 24, 512, 8, 128, 1.4e9},
      {"falcon-h1-3b", 32, 32, 128, 256, 4608, 4, 32, 512, 10, 128, 3.0e9},
      {"falcon-h1-7b", 44, 24, 128, 256, 3584, 4, 44, 512, 12, 128, 7.2e9},
      {"falcon-mamba-7b", 64, 8192, 1, 16, 8192, 4, 0, 0, 0, 0, 7.0e9},
      {"granite-4.0-h-1b", 36, 48, 64, 128, 3328, 4, 4, 1024, 12, 128, 1.3e9},
      {"granite-4.0-h-small", 36, 128, 64, 128, 8448, 4, 4, 2048, 32, 128, 9.0e9},
      {"jamba-1.5-large", 63, 16384, 1, 16, 16384, 4, 9, 2048, 64, 128, 94e9},
      {"jamba-1.5-mini", 28, 8192, 1, 16, 8192, 4, 4, 2048, 32, 128, 12e9},
      {"jamba-reasoning-3b", 26, 5120, 1, 16, 5120, 4, 2, 256, 20, 128, 2.9e9},
      {"kimi-linear-48b-a3b", 20, 32, 128, 128, 12288, 4, 7, 576, 32, 192, 3.0e9},
      {"mamba-codestral-7b", 64, 128, 64, 128, 10240, 4, 0, 0, 0, 0, 7.0e9},
      {"minimax-text-01", 70, 64, 128, 128, 0, 1, 10, 2048, 64, 128, 45.9e9},
      {"nemotron-3-nano-4b", 21, 96, 80, 128, 9728, 4, 4, 2048, 40, 128, 3.6e9},
      {"nemotron-3-super-120b-a12b", 40, 128, 64, 128, 10240, 4, 8, 512, 32, 128, 12e9},
      {"nemotron-h-8b", 24, 128, 64, 128, 10240, 4, 4, 2048, 32, 128, 7.6e9},
      {"nemotron-nano-9b-v2", 27, 128, 80, 128, 12288, 4, 4, 2048, 40, 128, 8.3e9},
      {"qwen3.5-0.8b", 18, 16, 128, 128, 6144, 4, 6, 1024, 8, 256, 0.6e9},
      {"qwen3.5-4b", 24, 32, 128, 128, 8192, 4, 8, 2048, 16, 256, 3.6e9},
      {"qwen3.5-9b", 24, 32, 128, 128, 8192, 4, 8, 2048, 16, 256, 8.0e9},
      {"qwen3.5-27b", 48, 48, 128, 128, 10240, 4, 16, 2048, 24, 256, 26e9},
      {"qwen3.5-35b-a3b", 30, 32, 128, 128, 8192, 4, 10, 1024, 16, 256, 3.0e9},
      {"qwen3.5-122b-a10b", 36, 64, 128, 128, 12288, 4, 12, 1024, 32, 256, 10e9},
      {"qwen3.5-397b-a17b", 45, 64, 128, 128, 12288, 4, 15, 1024, 32, 256, 17e9},
      {"zamba2-2.7b", 54, 80, 64, 64, 5248, 4, 9, 10240, 32, 160, 2.6e9},
      {"zamba2-7b", 81, 112, 64, 64, 7424, 4, 13, 14336, 32, 224, 7.2e9},
  };
  return table;
}

ReplayShape shape_of(const PublishedShape& published, double kv_element_bytes,
                     double state_element_bytes, double flops_per_second) {
  const std::int64_t layers = published.recurrent_layers;
  const std::int64_t matrix = std::int64_t{published.heads} * published.rows * published.columns;
  const std::int64_t conv = layers * published.conv_channels * (published.conv_width - 1) * 2;
  const double kv_elements =
      static_cast<double>(published.attention_layers) * static_cast<double>(published.kv_elements);
  ReplayShape shape = {
      .name = std::string(published.name),
      .kv_bytes_per_token = static_cast<std::int64_t>(kv_elements * kv_element_bytes),
      .state_bytes = conv + static_cast<std::int64_t>(static_cast<double>(layers * matrix) *
                                                      state_element_bytes),
      .state_bytes_int8 =
          conv + layers * (matrix + 2 * std::int64_t{published.heads} * published.rows),
      .conv_bytes = conv,
      .attention_layers = published.attention_layers,
      .recurrent_layers = published.recurrent_layers};
  // A multiplication and an addition per parameter, and half a square of scores and of values.
  shape.flops.linear = 2 * published.active_parameters + 6 * static_cast<double>(layers * matrix);
  shape.flops.square =
      2.0 * published.attention_layers * published.query_heads * published.head_dim;
  shape.seconds = {shape.flops.linear / flops_per_second, shape.flops.square / flops_per_second};
  return shape;
}

}  // namespace hyb::app
