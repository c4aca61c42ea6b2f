#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hyb::app {

/// Numbers as llama-bench writes them: "512", "128,512", "256-1024+256" (every 256),
/// "64-4096*2" (doubling), "4-8" (each), joined by commas; every text of `texts` adds to the list.
/// Throws Error(usage) naming `option` for anything else, for numbers outside 0 to 2^24, and for
/// more than 1000 numbers.
std::vector<std::int32_t> parse_counts(std::span<const std::string> texts, std::string_view option);

struct CountPair {
  std::int32_t first, second;
};

/// "PP,TG". Throws Error(usage) naming `option`.
CountPair parse_pair(const std::string& text, std::string_view option);

}  // namespace hyb::app
