#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/engine.h"

namespace hyb::app {

/// Brings an idle engine's pools into the state of one that has run for long: what is free lies
/// scattered, and here and there a page or a slot is held as long as this lives. Sequences that run
/// afterwards get pages far apart. The engine outlives it.
class ScrambledPool {
 public:
  ScrambledPool(Engine& engine, std::uint64_t seed);

  /// Sequences that stay.
  std::size_t held() const { return held_.size(); }

 private:
  std::vector<Memory> held_;
};

}  // namespace hyb::app
