#include "app/bench/scrambled_pool.h"

#include <algorithm>
#include <optional>
#include <random>

#include "core/base/error.h"

namespace hyb::app {

ScrambledPool::ScrambledPool(Engine& engine, std::uint64_t seed) {
  constexpr std::size_t sequences_max = 256;
  constexpr std::int32_t pages_max = 4;
  constexpr std::size_t one_stays_of = 32;
  MemoryPool& pool = engine.pool();
  std::mt19937_64 random(seed);
  std::vector<Memory> all;
  // A quarter of the memory at most: what is held must not make the rest scarce.
  while (all.size() < sequences_max &&
         pool.superblocks_free() > pool.layout().superblocks / 4 * 3) {
    std::optional<Memory> memory = pool.start();
    if (!memory) break;
    const auto pages = static_cast<std::int32_t>(random() % pages_max) + 1;
    const std::int32_t tokens = std::max(1, pages * pool.page_tokens());
    if (!memory->reserve(tokens)) break;
    all.push_back(std::move(*memory));
  }
  if (all.empty()) {
    throw Error(ErrorKind::usage, "--scramble: --memory-mode flat has no superblocks to scatter");
  }
  std::shuffle(all.begin(), all.end(), random);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % one_stays_of == 0) held_.push_back(std::move(all[i]));
  }
  all.clear();
  engine.carry_out_orders();
}

}  // namespace hyb::app
