#include "core/engine/engine_limits.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/base/log.h"

namespace hyb {

namespace {

bool are_same(const MemoryLayout& one, const MemoryLayout& other) {
  if (one.superblocks != other.superblocks || one.superblock_bytes != other.superblock_bytes ||
      one.page_tokens != other.page_tokens || one.views() != other.views()) {
    return false;
  }
  for (std::int32_t view = 0; view < one.views(); ++view) {
    if (one.units_per_superblock(ViewId{view}) != other.units_per_superblock(ViewId{view})) {
      return false;
    }
  }
  return true;
}

/// Returns whether units of both have the same bytes for the same tokens.
bool are_alike(const MemoryLayout& one, const MemoryLayout& other) {
  if (one.page_tokens != other.page_tokens || one.views() != other.views()) return false;
  for (std::int32_t view = 0; view < one.views(); ++view) {
    const bool has_some = one.units_per_superblock(ViewId{view}) > 0;
    if (has_some != (other.units_per_superblock(ViewId{view}) > 0)) return false;
    if (view == index(one.ring_view())) continue;  // a sequence between two steps has none
    if (one.content_bytes(ViewId{view}) != other.content_bytes(ViewId{view})) return false;
  }
  return true;
}

}  // namespace

void check_engine(const Capacity& capacity, const EngineOptions& options) {
  require(capacity.step_tokens > 0 && capacity.sequences_max > 0 && capacity.vocab > 0,
          "engine: a runner has room for one token, one row and a vocabulary");
  const auto refuse = [](std::string_view rule, std::int32_t value) {
    throw Error(ErrorKind::usage, fmt::format("engine: {}: {}", rule, value));
  };
  if (options.prefill_lane != nullptr) {
    const Capacity other = options.prefill_lane->capacity();
    require(options.prefill_lane->is_async() && other.step_tokens == capacity.step_tokens &&
                other.sequences_max == capacity.sequences_max && other.vocab == capacity.vocab &&
                other.step_spans == capacity.step_spans &&
                other.step_samples == capacity.step_samples,
            "engine: both lanes have one model");
    require(options.link == nullptr ? are_same(other.memory, capacity.memory)
                                    : are_alike(other.memory, capacity.memory),
            "engine: both lanes have one memory, or two that are cut alike");
  }
  require(options.link == nullptr || options.prefill_lane != nullptr,
          "engine: a link leads to the memory of a prefill lane");
  require(!options.state_share || options.prefill_lane == nullptr,
          "engine: a fixed share of states is for one lane");
  if (options.length_max < 2) refuse("the length limit is 2 tokens or more", options.length_max);
  if (options.sequences_max < 1) refuse("at least 1 sequence runs", options.sequences_max);
  if (options.shared_tokens_min < 1) {
    refuse("at least 1 token is shared", options.shared_tokens_min);
  }
  if (options.chunk_tokens < 1) refuse("a chunk has at least 1 token", options.chunk_tokens);
  if (options.mixed_tokens < 0)
    refuse("prompts beside answers have 0 or more tokens", options.mixed_tokens);
}

MemoryLayout pool_layout(const Capacity& capacity, const EngineOptions& options) {
  return options.state_share ? with_state_share(capacity.memory, *options.state_share)
                             : capacity.memory;
}

SchedulerLimits scheduler_limits(const Capacity& capacity, const EngineOptions& options) {
  return {.sequences_max =
              std::min({options.sequences_max, capacity.sequences_max, capacity.step_tokens}),
          .chunk_tokens = options.chunk_tokens,
          .mixed_tokens = options.mixed_tokens,
          .step_tokens = capacity.step_tokens,
          .step_spans = capacity.step_spans,
          .step_samples = capacity.step_samples,
          .step_branches = capacity.step_branches,
          .shared_tokens_min = options.shared_tokens_min,
          .look_ahead = options.look_ahead};
}

bool lacks_memory(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known.kind() == ErrorKind::memory;
  } catch (...) {
    return false;
  }
}

void check_result(const StepResult& result, std::size_t rows, std::int32_t vocab) {
  require(result.sampled.size() == rows, "engine: the runner answers every row");
  for (const SampledToken& sampled : result.sampled) {
    require(!sampled.finite || (index(sampled.token) >= 0 && index(sampled.token) < vocab),
            "engine: the runner draws from the vocabulary");
  }
}

std::int32_t length_limit(const MemoryPool& pool, std::int32_t asked) {
  const auto fits = [&](std::int32_t length) { return pool.can_ever_hold(length, 1); };
  if (!fits(2)) {
    throw Error(ErrorKind::memory, "engine: the memory holds less than 2 tokens; give more memory");
  }
  if (fits(asked)) return asked;
  std::int32_t low = 2, high = asked;  // low fits, high does not
  while (high - low > 1) {
    const std::int32_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

void check_fits(const MemoryPool& pool, std::int64_t prompt_tokens, std::int32_t length_max,
                std::int32_t asked) {
  if (prompt_tokens < length_max || prompt_tokens >= asked) return;
  throw Error(
      ErrorKind::memory,
      fmt::format("engine: the prompt has {} tokens and needs {} bytes of memory; there are {} "
                  "bytes, enough for a prompt of {} tokens; shorten it, or give more memory",
                  prompt_tokens,
                  bytes_peak(pool.layout(), static_cast<std::int32_t>(prompt_tokens) + 1, 1),
                  pool.layout().bytes(), length_max - 1));
}

bool OomRecovery::recover(MemoryPool& pool, Runner& runner, const Error& error) {
  if (error.kind() != ErrorKind::memory || is_short_) return false;
  is_short_ = true;
  runner.release_caches();
  const std::int32_t superblocks = pool.shrink(std::max(1, pool.superblocks().free() / 8));
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
