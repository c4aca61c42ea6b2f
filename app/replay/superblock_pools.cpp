#include "app/replay/superblock_pools.h"

#include <algorithm>

namespace hyb::app {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + models::slot_alignment - 1) / models::slot_alignment * models::slot_alignment;
}

models::Geometry geometry_of(const ReplayShape& shape) {
  models::Geometry geometry{};
  geometry.page_tokens = models::page_tokens;
  geometry.kv_bytes_per_token = static_cast<std::size_t>(shape.kv_bytes_per_token);
  geometry.page_bytes = geometry.kv_bytes_per_token * models::page_tokens;
  const auto layers = static_cast<std::size_t>(shape.attention_layers);
  if (layers > 0) {
    models::PageLayout page{};
    page.page_bytes = geometry.page_bytes / layers;
    geometry.pages.assign(layers, page);
    geometry.page_bytes = page.page_bytes * layers;
  }
  geometry.state_bytes_per_sequence = static_cast<std::size_t>(shape.state_bytes);
  geometry.slot_bytes = aligned(geometry.state_bytes_per_sequence);
  if (shape.has_state()) {
    // What packs to its own size is a piece without rows.
    models::SlotPiece piece{};
    piece.conv_bytes = static_cast<std::size_t>(shape.state_bytes_int8);
    geometry.pieces = {piece};
  }
  return geometry;
}

}  // namespace

models::ModelMemoryLayout superblock_pools(const ReplayShape& shape, std::int64_t budget_bytes,
                                           SnapshotFormat snapshots) {
  return models::memory_layout_of(geometry_of(shape),
                                  {.pool_bytes = static_cast<std::size_t>(budget_bytes),
                                   .packed = snapshots == SnapshotFormat::int8 && shape.has_state(),
                                   .flat = {}});
}

}  // namespace hyb::app
