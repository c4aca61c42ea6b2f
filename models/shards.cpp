#include "models/shards.h"

#include <algorithm>
#include <optional>

#include "core/base/error.h"

namespace hyb::models {
namespace {

/// Heads at one place of a rank's unit, one after the other.
struct HeadBytes {
  std::size_t offset;  ///< of the first one that the rank keeps
  std::size_t bytes;   ///< of each
  RankHeads heads;
};

/// A unit of one side. Places are in the same order whatever the number of ranks.
class UnitParts {
 public:
  UnitParts(const ShardSide& side, ViewId view) : side_(side), geometry_(side.geometry) {
    const MemoryLayout& layout = side.memory.layout;
    if (view == layout.slot_view()) {
      for (const SlotPiece& piece : geometry_.pieces) add_slot(piece);
    } else if (view == layout.packed_view()) {
      require(side.memory.snapshot.bytes > 0, "shards: the layout has packed snapshots");
      for (std::size_t i = 0; i < geometry_.pieces.size(); ++i) add_packed(i);
    } else if (view == layout.ring_view()) {
      require(side.memory.ring.bytes > 0, "shards: the layout has rings");
      for (std::size_t i = 0; i < geometry_.pieces.size(); ++i) add_ring(i);
    } else {
      add_pages(side.memory.layers.at(static_cast<std::size_t>(index(view))));
    }
  }

  const std::vector<HeadBytes>& parts() const { return parts_; }
  /// Says whether a layer's page begins here that is not the unit's first.
  bool begins_page(std::size_t part) const {
    return std::binary_search(page_begins_.begin(), page_begins_.end(), part);
  }

 private:
  void add(std::size_t offset, std::size_t bytes, const RankHeads& heads) {
    if (heads.kept > 0) parts_.push_back({offset, bytes, heads});
  }

  /// Places that follow each other; `times` numbers of `number_bytes` for each number of a head.
  void add_all(const std::vector<RankHeads>& all, std::size_t times, std::size_t number_bytes,
               std::size_t& offset) {
    for (const RankHeads& heads : all) {
      const std::size_t bytes = static_cast<std::size_t>(heads.width) * times * number_bytes;
      add(offset, bytes, heads);
      offset += static_cast<std::size_t>(heads.kept) * bytes;
    }
  }

  void add_pages(const std::vector<std::size_t>& layers) {
    std::size_t offset = 0;
    for (const std::size_t ordinal : layers) {
      const PageLayout& page = geometry_.pages.at(ordinal);
      require(page.heads.kept > 0, "shards: a page has heads");
      page_begins_.push_back(parts_.size());
      add(offset, page.page_bytes / static_cast<std::size_t>(page.heads.kept), page.heads);
      offset += page.page_bytes;
    }
  }

  void add_window(const SlotPiece& piece, std::size_t offset) {
    add_all(piece.channels, static_cast<std::size_t>(piece.conv_width) - 1,
            size_of(geometry_.load.activation), offset);
  }

  void add_slot(const SlotPiece& piece) {
    add_window(piece, piece.conv_offset);
    add(piece.state_offset,
        static_cast<std::size_t>(piece.state.width) * size_of(geometry_.state_dtype), piece.state);
  }

  void add_packed(std::size_t piece_index) {
    const SlotPiece& piece = geometry_.pieces[piece_index];
    const kernels::SnapshotPiece& packed = side_.memory.snapshot.pieces.at(piece_index);
    add_window(piece, packed.packed_window);
    add(packed.packed_scales, static_cast<std::size_t>(piece.rows) * size_of(DType::bf16),
        piece.state);
    add(packed.packed_values, static_cast<std::size_t>(piece.state.width), piece.state);
  }

  void add_ring(std::size_t piece_index) {
    const SlotPiece& piece = geometry_.pieces[piece_index];
    std::size_t offset = side_.memory.ring.offsets.at(piece_index);
    for (std::int32_t entry = 0; entry < side_.memory.layout.ring_tokens; ++entry) {
      add_all(piece.channels, 1, size_of(geometry_.load.activation), offset);
      add_all(piece.inputs, 1, size_of(geometry_.load.activation), offset);
    }
  }

  const ShardSide& side_;
  const Geometry& geometry_;
  std::vector<HeadBytes> parts_;
  std::vector<std::size_t> page_begins_;
};

/// Returns that of the ranks which keep the head whose place among them is nearest to that of
/// `to_rank` on its side.
std::int32_t source_of(const RankHeads& heads, std::int32_t head, std::int32_t wanted) {
  const std::int32_t first = head / heads.kept * heads.copies;
  return std::clamp(wanted, first, first + heads.copies - 1);
}

/// Collects the runs of one receiving rank.
class RunCollector {
 public:
  RunCollector(std::int32_t to_rank, std::int32_t from_ranks, std::vector<ShardRun>& runs)
      : to_rank_(to_rank), last_(static_cast<std::size_t>(from_ranks)), runs_(runs) {}

  /// No run goes on from before.
  void begin_page() { std::fill(last_.begin(), last_.end(), std::nullopt); }

  void add(std::int32_t from_rank, std::size_t from, std::size_t to, std::size_t bytes) {
    std::optional<std::size_t>& last = last_[static_cast<std::size_t>(from_rank)];
    if (last) {
      ShardRun& run = runs_[*last];
      if (run.from + run.bytes == from && run.to + run.bytes == to) {
        run.bytes += bytes;
        return;
      }
    }
    last = runs_.size();
    runs_.push_back({from_rank, to_rank_, from, to, bytes});
  }

 private:
  std::int32_t to_rank_;
  std::vector<std::optional<std::size_t>> last_;  ///< by source: the place of its latest run
  std::vector<ShardRun>& runs_;
};

}  // namespace

std::vector<ShardRun> shard_runs(const ShardSide& from, const ShardSide& to, ViewId view) {
  const Geometry &sender = from.geometry, &receiver = to.geometry;
  require(
      sender.kv_dtype == receiver.kv_dtype && sender.load.activation == receiver.load.activation &&
          sender.state_dtype == receiver.state_dtype &&
          sender.page_tokens == receiver.page_tokens && from.memory.layers == to.memory.layers &&
          from.memory.layout.ring_tokens == to.memory.layout.ring_tokens,
      "shards: both sides have the same model, types and groups");
  const UnitParts sources(from, view), targets(to, view);
  require(sources.parts().size() == targets.parts().size(), "shards: both sides are of one model");
  std::vector<ShardRun> runs;
  for (std::int32_t rank = 0; rank < receiver.ranks; ++rank) {
    const std::int32_t wanted =
        static_cast<std::int32_t>(std::int64_t{rank} * sender.ranks / receiver.ranks);
    RunCollector collector(rank, sender.ranks, runs);
    for (std::size_t i = 0; i < targets.parts().size(); ++i) {
      if (targets.begins_page(i)) collector.begin_page();
      const HeadBytes &source = sources.parts()[i], &target = targets.parts()[i];
      require(source.bytes == target.bytes && source.heads.heads == target.heads.heads,
              "shards: both sides are of one model");
      for (std::int32_t kept = 0; kept < target.heads.kept; ++kept) {
        const std::int32_t head = target.heads.first(rank) + kept;
        const std::int32_t sending = source_of(source.heads, head, wanted);
        const std::int32_t place = head - source.heads.first(sending);
        collector.add(sending, source.offset + static_cast<std::size_t>(place) * source.bytes,
                      target.offset + static_cast<std::size_t>(kept) * target.bytes, target.bytes);
      }
    }
  }
  return runs;
}

}  // namespace hyb::models
