#pragma once

#include <cstdint>
#include <string_view>

namespace hyb {

/// Positions [first, last) of a sequence.
struct PositionRange {
  std::int32_t first, last;
};

/// What one kind of layer memory keeps of a sequence. Pools, prefix tree, tiers and session files
/// know kinds through this alone, so a new kind is one class. Layers that share another layer's
/// keys and values have no memory of their own and no kind.
class MemoryKind {
 public:
  virtual ~MemoryKind() = default;

  /// One word for tables and files, such as "full".
  virtual std::string_view name() const = 0;

  /// Whether the token at position `length`, or a later one, may read any of these earlier
  /// positions. Once false for a length it is false for every greater one: what has fallen out
  /// never comes back. So a page may be freed when this is false for all its positions, and a
  /// prefix of `length` tokens can be resumed when every page for which it is true is there. Ranges
  /// fall out in the order of their positions, but for those that never do.
  virtual bool needs(PositionRange positions, std::int32_t length) const = 0;

  /// The kind has one slot per sequence instead of pages: the prefix can be resumed only where a
  /// snapshot was taken.
  virtual bool is_recurrent() const { return false; }
};

/// Every earlier position.
class FullAttention final : public MemoryKind {
 public:
  std::string_view name() const override { return "full"; }
  bool needs(PositionRange positions, std::int32_t length) const override;
};

/// The last `window` positions, the token's own included.
class SlidingWindow final : public MemoryKind {
 public:
  explicit SlidingWindow(std::int32_t window) : window_(window) {}
  std::string_view name() const override { return "window"; }
  bool needs(PositionRange positions, std::int32_t length) const override;
  std::int32_t window() const { return window_; }

 private:
  std::int32_t window_;
};

/// The positions from the last multiple of `chunk` on.
class ChunkedAttention final : public MemoryKind {
 public:
  explicit ChunkedAttention(std::int32_t chunk) : chunk_(chunk) {}
  std::string_view name() const override { return "chunked"; }
  bool needs(PositionRange positions, std::int32_t length) const override;
  std::int32_t chunk() const { return chunk_; }

 private:
  std::int32_t chunk_;
};

/// No positions: all is in the slot.
class RecurrentState final : public MemoryKind {
 public:
  std::string_view name() const override { return "recurrent"; }
  bool needs(PositionRange, std::int32_t) const override { return false; }
  bool is_recurrent() const override { return true; }
};

}  // namespace hyb
