#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/ids.h"
#include "models/geometry.h"
#include "models/memory_layout.h"

/// A sequence's memory between groups of ranks of different sizes: each rank keeps the heads that
/// it computes, so a page, slot, packed snapshot or ring is made of parts of those of other ranks.
namespace hyb::models {

/// One side of an exchange: how a unit of each of its ranks is laid out. Both outlive this.
struct ShardSide {
  const Geometry& geometry;  ///< of a rank
  const StoreLayout& memory;
};

/// Bytes that lie together in a unit of one rank and in the same unit of another one. Offsets are
/// those of Store::read; a run is inside of one layer's page, so arenas have it in one piece, too.
struct ShardRun {
  std::int32_t from_rank, to_rank;
  std::size_t from, to, bytes;
};

/// Lists what fills a unit of this view on every rank of the other side, without gaps between
/// layers and without padding: each of its bytes once, from the one rank that has it, or of several
/// from the one nearest in rank order, so that copies are read from different ranks. Runs are as
/// long as possible; those of one receiving rank follow each other. Both sides are of one model,
/// with the same types, page tokens, page groups and ring tokens.
std::vector<ShardRun> shard_runs(const ShardSide& from, const ShardSide& to, ViewId view);

}  // namespace hyb::models
