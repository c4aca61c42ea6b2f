#include "models/geometry.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/error.h"

namespace hyb::models {
namespace {

[[noreturn]] void fail_too_large() {
  throw Error(ErrorKind::model,
              "geometry: the plan asks for more than 2^44 bytes in one layer; look at the sizes "
              "of heads and states in config.json");
}

/// Refuses products that overflow; a plan may come from a hostile config.json.
std::size_t product(std::initializer_list<std::int64_t> factors) {
  constexpr std::int64_t bytes_max = std::int64_t{1} << 44;
  std::int64_t result = 1;
  for (const std::int64_t factor : factors) {
    if (__builtin_mul_overflow(result, factor, &result) || result > bytes_max) fail_too_large();
  }
  return static_cast<std::size_t>(result);
}

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

std::size_t aligned(std::size_t offset) {
  return (offset + slot_alignment - 1) / slot_alignment * slot_alignment;
}

struct Place {
  std::int32_t layer;
  std::int32_t block;
  std::int32_t part;
};

/// The heads of each rank; `what` they are of this layer.
RankHeads divided(const HeadNumbers& numbers, std::int32_t ranks, const Place& at,
                  const char* what) {
  const std::int32_t heads = numbers.heads;
  RankHeads result = {.heads = heads, .kept = heads, .width = numbers.width, .copies = ranks};
  if (numbers.division == Division::none) return result;
  if (heads % ranks == 0) {
    result.kept = heads / ranks;
    result.copies = 1;
    return result;
  }
  if (numbers.division == Division::groups && ranks % heads == 0) {
    result.kept = 1;
    result.copies = ranks / heads;
    return result;
  }
  throw Error(ErrorKind::usage,
              fmt::format("layer {}: {} {} cannot be divided among {} ranks; their number has to "
                          "divide that of the {}{}",
                          at.layer, heads, what, ranks, what,
                          numbers.division == Division::groups ? ", or be a multiple of it" : ""));
}

std::vector<RankHeads> divided(const std::vector<HeadNumbers>& all, std::int32_t ranks,
                               const Place& at, const char* what) {
  std::vector<RankHeads> result;
  for (const HeadNumbers& numbers : all) result.push_back(divided(numbers, ranks, at, what));
  return result;
}

/// Numbers that a rank keeps of all.
std::int32_t kept_numbers(const std::vector<RankHeads>& all) {
  std::size_t numbers = 0;
  for (const RankHeads& heads : all) numbers += product({heads.kept, heads.width});
  if (numbers > std::size_t{std::numeric_limits<std::int32_t>::max()}) fail_too_large();
  return static_cast<std::int32_t>(numbers);
}

Reach reach_of(const KvShape& kv) {
  if (kv.chunk != 0) return {.kind = Reach::Kind::chunk, .tokens = kv.chunk};
  if (kv.window == 0) return {};
  return {.kind = Reach::Kind::window, .tokens = kv.window};
}

void add_pages(Geometry& geometry, const Place& at, const KvShape& kv) {
  divided({Division::heads, kv.query_heads, kv.head_dim}, geometry.ranks, at, "query heads");
  const std::int32_t sides = kv.are_latents ? 1 : 2;  // keys, and values
  const RankHeads heads =
      divided({Division::groups, kv.kv_heads, std::int64_t{sides} * kv.head_dim}, geometry.ranks,
              at, "key and value heads");
  const std::size_t elements = product({sides, heads.kept, kv.head_dim});
  const std::size_t page_bytes = product(
      {static_cast<std::int64_t>(elements), geometry.page_tokens, bytes_of(geometry.kv_dtype)});
  geometry.pages.push_back({.layer = at.layer,
                            .block = at.block,
                            .part = at.part,
                            .kv_heads = heads.kept,
                            .head_dim = kv.head_dim,
                            .elements_per_token = static_cast<std::int64_t>(elements),
                            .page_bytes = page_bytes,
                            .reach = reach_of(kv),
                            .heads = heads});
  geometry.page_bytes += page_bytes;
  const std::size_t token_bytes = page_bytes / static_cast<std::size_t>(geometry.page_tokens);
  const std::int32_t reach = std::max(kv.window, kv.chunk);
  if (reach == 0) {
    geometry.kv_bytes_per_token += token_bytes;
  } else {
    geometry.window_kv_bytes += token_bytes * static_cast<std::size_t>(reach);
  }
}

/// The hidden states of all positions, for a draft layer.
void add_hidden_pages(Geometry& geometry, std::int32_t layer, std::int32_t width) {
  const std::size_t token_bytes = product({width, bytes_of(geometry.load.activation)});
  const auto kv_bytes = static_cast<std::int64_t>(size_of(geometry.kv_dtype));
  const auto tokens = static_cast<std::size_t>(geometry.page_tokens);
  geometry.pages.push_back({.layer = layer,
                            .block = 0,
                            .part = 0,
                            .kv_heads = 0,
                            .head_dim = 0,
                            .elements_per_token = static_cast<std::int64_t>(token_bytes) / kv_bytes,
                            .page_bytes = token_bytes * tokens,
                            .heads = divided({Division::none, 1, width}, geometry.ranks,
                                             {.layer = layer, .block = 0, .part = 0}, "")});
  geometry.page_bytes += token_bytes * tokens;
  geometry.kv_bytes_per_token += token_bytes;
}

void add_state(Geometry& geometry, const Place& at, const StateShape& shape) {
  std::vector<RankHeads> channels =
      divided(shape.channels, geometry.ranks, at, "heads or groups of a convolution");
  std::vector<RankHeads> inputs = divided(shape.inputs, geometry.ranks, at, "heads");
  const std::int32_t conv_channels = kept_numbers(channels);
  const auto matrix = static_cast<std::int64_t>(product({shape.rows, shape.columns}));
  const RankHeads state =
      divided({Division::heads, shape.heads, matrix}, geometry.ranks, at, "heads of a state");
  SlotPiece piece = {
      .layer = at.layer,
      .block = at.block,
      .part = at.part,
      .conv_channels = conv_channels,
      .conv_width = shape.conv_width,
      .heads = state.kept,
      .rows = shape.rows,
      .columns = shape.columns,
      .conv_offset = geometry.slot_bytes,
      .conv_bytes =
          product({conv_channels, shape.conv_width - 1, bytes_of(geometry.load.activation)}),
      .state_offset = 0,
      .state_bytes =
          product({state.kept, shape.rows, shape.columns, bytes_of(geometry.state_dtype)}),
      .ring_width = conv_channels + kept_numbers(inputs),
      .channels = std::move(channels),
      .inputs = std::move(inputs),
      .state = state};
  piece.state_offset = piece.conv_offset + aligned(piece.conv_bytes);
  geometry.slot_bytes = piece.state_offset + aligned(piece.state_bytes);
  geometry.state_bytes_per_sequence += piece.conv_bytes + piece.state_bytes;
  geometry.pieces.push_back(std::move(piece));
}

void add_layer(Geometry& geometry, std::int32_t layer, const Layer& described) {
  for (std::size_t b = 0; b < described.blocks.size(); ++b) {
    const std::vector<Part>& parts = described.blocks[b].parts;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const Place at = {layer, static_cast<std::int32_t>(b), static_cast<std::int32_t>(p)};
      const MemoryShape shape =
          std::visit([](const auto& part) { return part.memory(); }, parts[p]);
      if (shape.kv) add_pages(geometry, at, *shape.kv);
      if (shape.state) add_state(geometry, at, *shape.state);
    }
  }
}

}  // namespace

Geometry geometry_of(const Plan& plan, const GeometryOptions& options) {
  Geometry geometry = {.page_tokens = options.page_tokens,
                       .kv_dtype = options.kv.value_or(options.load.activation),
                       .state_dtype = options.state.value_or(plan.state_dtype),
                       .ranks = options.ranks,
                       .load = options.load,
                       .kv_bytes_per_token = 0,
                       .page_bytes = 0,
                       .slot_bytes = 0,
                       .state_bytes_per_sequence = 0};
  const auto layers = static_cast<std::int32_t>(plan.layers.size());
  for (std::int32_t l = 0; l < layers; ++l) {
    add_layer(geometry, l, plan.layers[static_cast<std::size_t>(l)]);
  }
  if (!plan.draft) return geometry;
  const bool has_slots = !geometry.pieces.empty();
  const auto drafting = static_cast<std::int32_t>(plan.draft->layers.size());
  for (std::int32_t l = 0; l < drafting; ++l) {
    add_layer(geometry, layers + l, plan.draft->layers[static_cast<std::size_t>(l)]);
  }
  if (!plan.draft->runs_in_passes()) return geometry;
  // A position's hidden state, which the next one's entry is made of: a window of one.
  if (!has_slots) {
    add_hidden_pages(geometry, layers + drafting, plan.width);
    return geometry;
  }
  add_state(geometry, {layers + drafting, 0, 0},
            {.channels = {{Division::none, 1, plan.width}}, .conv_width = 2});
  return geometry;
}

SnapshotLayout snapshot_layout(const Geometry& geometry) {
  SnapshotLayout layout;
  const auto take = [&](std::size_t bytes) {
    const std::size_t at = layout.bytes;
    layout.bytes += aligned(bytes);
    return at;
  };
  for (const SlotPiece& piece : geometry.pieces) {
    const std::int64_t rows = std::int64_t{piece.heads} * piece.rows;
    const auto row_count = static_cast<std::size_t>(rows);
    layout.pieces.push_back(
        {.slot_window = piece.conv_offset,
         .slot_state = piece.state_offset,
         .packed_window = take(piece.conv_bytes),
         .packed_scales = take(row_count * size_of(DType::bf16)),
         .packed_values = take(row_count * static_cast<std::size_t>(piece.columns)),
         .window_bytes = piece.conv_bytes,
         .rows = rows,
         .columns = piece.columns});
  }
  return layout;
}

RingLayout ring_layout(const Geometry& geometry, std::int32_t tokens) {
  RingLayout layout;
  if (tokens == 0) return layout;
  for (const SlotPiece& piece : geometry.pieces) {
    layout.offsets.push_back(layout.bytes);
    layout.bytes +=
        aligned(product({tokens, piece.ring_width, bytes_of(geometry.load.activation)}));
  }
  return layout;
}

}  // namespace hyb::models
