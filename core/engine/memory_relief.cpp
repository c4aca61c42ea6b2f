#include "core/engine/memory_relief.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/base/log.h"

namespace hyb {

bool MemoryRelief::relieve(MemoryPool& pool, Runner& runner, const Error& error) {
  if (error.kind() != ErrorKind::memory || is_short_) return false;
  is_short_ = true;
  runner.give_way();
  const std::int32_t superblocks = pool.shrink(std::max(1, pool.superblocks_free() / 8));
  const std::string given =
      superblocks == 0 ? "" : fmt::format(" {} superblocks of the pools go back,", superblocks);
  log::warning(fmt::format("{};{} what ran is run again", error.what(), given));
  return true;
}

Error with_holdings(const Error& error, const Runner& runner) {
  const std::string holdings = runner.holdings();
  if (error.kind() != ErrorKind::memory || holdings.empty()) return error;
  return Error(error.kind(), fmt::format("{}; {}", error.what(), holdings));
}

}  // namespace hyb
