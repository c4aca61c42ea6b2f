#include "app/bench/counts.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "core/base/error.h"

namespace hyb::app {
namespace {

constexpr std::int64_t count_max = 1 << 24;
constexpr std::size_t counts_max = 1000;

/// Takes a number off the front of `text`.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value > count_max) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

struct Range {
  std::int64_t first, last;
  std::int64_t step = 1;
  std::int64_t factor = 1;
};

/// N, N-N, N-N+N or N-N*N; nothing for other texts and for ranges that never end.
std::optional<Range> parse_range(std::string_view text) {
  const auto first = take_number(text);
  if (!first) return std::nullopt;
  Range range = {.first = *first, .last = *first};
  if (text.empty()) return range;
  if (text.front() != '-') return std::nullopt;
  text.remove_prefix(1);
  const auto last = take_number(text);
  if (!last || *last < *first) return std::nullopt;
  range.last = *last;
  if (text.empty()) return range;
  const char sign = text.front();
  text.remove_prefix(1);
  const auto step = take_number(text);
  if (!step || !text.empty()) return std::nullopt;
  if (sign == '+' && *step > 0) {
    range.step = *step;
    return range;
  }
  if (sign != '*' || *step < 2 || *first == 0) return std::nullopt;
  range.step = 0;
  range.factor = *step;
  return range;
}

}  // namespace

std::vector<std::int32_t> parse_counts(std::span<const std::string> texts,
                                       std::string_view option) {
  std::vector<std::int32_t> counts;
  for (const std::string& text : texts) {
    std::string_view rest = text;
    for (bool more = true; more;) {
      const std::size_t comma = rest.find(',');
      const std::string_view one = rest.substr(0, comma);
      more = comma != std::string_view::npos;
      if (more) rest.remove_prefix(comma + 1);
      const auto range = parse_range(one);
      if (!range) {
        throw Error(ErrorKind::usage,
                    fmt::format("{}: '{}' is not a number up to {}, nor a range like 128-1024+128 "
                                "or 64-4096*2",
                                option, one, count_max));
      }
      for (std::int64_t value = range->first; value <= range->last;
           value = value * range->factor + range->step) {
        if (counts.size() == counts_max) {
          throw Error(ErrorKind::usage,
                      fmt::format("{}: more than {} numbers", option, counts_max));
        }
        counts.push_back(static_cast<std::int32_t>(value));
      }
    }
  }
  return counts;
}

CountPair parse_pair(const std::string& text, std::string_view option) {
  std::string_view rest = text;
  const auto first = take_number(rest);
  if (first && !rest.empty() && rest.front() == ',') {
    rest.remove_prefix(1);
    const auto second = take_number(rest);
    if (second && rest.empty() && *first > 0 && *second > 0) {
      return {static_cast<std::int32_t>(*first), static_cast<std::int32_t>(*second)};
    }
  }
  throw Error(ErrorKind::usage,
              fmt::format("{}: '{}' is not PP,TG, two positive numbers", option, text));
}

}  // namespace hyb::app
