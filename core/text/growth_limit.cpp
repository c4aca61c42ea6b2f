#include "core/text/growth_limit.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace hyb {
namespace {

constexpr std::size_t growth_factor_max = 64;
constexpr std::size_t growth_free = 4096;
constexpr std::size_t steps_max = 256;

}  // namespace

GrowthLimit::GrowthLimit(std::string_view where, std::size_t text_bytes)
    : where_(where), text_bytes_(text_bytes), left_(growth_free + growth_factor_max * text_bytes) {}

void GrowthLimit::charge(std::size_t old_bytes, std::size_t new_bytes) {
  if (new_bytes <= old_bytes) return;
  const std::size_t growth = new_bytes - old_bytes;
  if (growth > left_) {
    throw Error(ErrorKind::model,
                fmt::format("{}: its steps add more than {} bytes to a text of size {}; the limit "
                            "is {} times the text and {} bytes",
                            where_, growth_free + growth_factor_max * text_bytes_, text_bytes_,
                            growth_factor_max, growth_free));
  }
  left_ -= growth;
}

void check_step_count(std::size_t steps, std::string_view where) {
  if (steps <= steps_max) return;
  throw Error(ErrorKind::model,
              fmt::format("{}: has {} steps, the limit is {}", where, steps, steps_max));
}

}  // namespace hyb
