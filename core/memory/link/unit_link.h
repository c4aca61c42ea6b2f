#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/ids.h"

namespace hyb {

/// A unit of one memory and the one of another memory that gets its bytes, of the same view.
struct UnitMove {
  ViewId view;
  std::int32_t from, to;
};

/// Copies under way. When this is destroyed they have ended, or never begin.
class UnitCopies {
 public:
  virtual ~UnitCopies() = default;
  virtual bool is_done() = 0;
  /// Until they are done. Throws Error(runtime) where one failed: then the targets have any bytes.
  virtual void wait() = 0;
};

/// The way between the memory of two sides, that of prompts and that of answers, beside the steps
/// of both. The number of bytes of a unit that lie in its layout's content_bytes is the same on
/// both sides; they may be padded in other ways.
class UnitLink {
 public:
  enum class Direction : std::uint8_t { to_answers, to_prompts };

  virtual ~UnitLink() = default;

  /// Begins to copy. Until the copies have ended, the units are neither moved nor given to anyone
  /// else, and no step writes them or names the targets; the sources have their bytes, and the
  /// targets' superblocks their owners. What it returns is destroyed before this object.
  virtual std::unique_ptr<UnitCopies> start(Direction direction, std::vector<UnitMove> moves) = 0;
};

}  // namespace hyb
