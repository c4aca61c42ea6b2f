#include "core/engine/prefill_watch.h"

#include <bit>
#include <cmath>

namespace hyb {
namespace {

constexpr std::int64_t watched_tokens_min = 16;
constexpr std::int64_t steps_between =
    32;  // steps between two comparisons, after the first few at powers of two
constexpr double much = 0.1;

bool differ(const PrefillCost& a, const PrefillCost& b, std::int32_t length) {
  return std::abs(a.of(length) / b.of(length) - 1) > much;
}

}  // namespace

std::optional<PrefillCost> PrefillWatch::ran(const Step& step,
                                             std::chrono::duration<double> elapsed) {
  PrefillStep work{.seconds = elapsed.count()};
  std::int64_t single = 0;
  for (const Span& span : step.spans) {
    const double begin = span.position, end = begin + static_cast<double>(span.tokens.size());
    work.tokens += std::ssize(span.tokens);
    work.positions += end * end - begin * begin;
    if (span.tokens.size() == 1) ++single;
  }
  if (work.tokens < watched_tokens_min || 4 * single > work.tokens) return std::nullopt;
  meter_.ran(work);
  const std::int64_t steps = meter_.steps();
  if (!std::has_single_bit(static_cast<std::uint64_t>(steps)) && steps % steps_between != 0) {
    return std::nullopt;
  }
  const std::optional<PrefillCost> cost = meter_.cost();
  if (!cost || !(differ(*cost, used_, 1024) || differ(*cost, used_, length_max_))) {
    return std::nullopt;
  }
  used_ = *cost;
  return cost;
}

}  // namespace hyb
