#include "core/memory/kind.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <vector>

using namespace hyb;

namespace {

/// The first position that a token at `position` reads, straight from the definitions.
std::int32_t first_read(const MemoryKind& kind, std::int32_t position) {
  if (const auto* window = dynamic_cast<const SlidingWindow*>(&kind)) {
    return std::max(0, position + 1 - window->window());
  }
  if (const auto* chunked = dynamic_cast<const ChunkedAttention*>(&kind)) {
    return position / chunked->chunk() * chunked->chunk();
  }
  return kind.is_recurrent() ? position : 0;
}

}  // namespace

TEST_SUITE("core/memory/kind") {
  TEST_CASE("a range is needed while this or a later token reads one of its positions") {
    std::vector<std::unique_ptr<MemoryKind>> kinds;
    kinds.push_back(std::make_unique<FullAttention>());
    kinds.push_back(std::make_unique<RecurrentState>());
    for (const std::int32_t n : {1, 2, 7, 16}) {
      kinds.push_back(std::make_unique<SlidingWindow>(n));
      kinds.push_back(std::make_unique<ChunkedAttention>(n));
    }
    for (const auto& kind : kinds) {
      CAPTURE(kind->name());
      for (std::int32_t length = 0; length < 40; ++length) {
        for (std::int32_t first = 0; first < 40; ++first) {
          for (std::int32_t last = first; last < 44; ++last) {
            bool read = false;
            for (std::int32_t token = length; token < 60; ++token) {
              for (std::int32_t at = first_read(*kind, token); at < length; ++at) {
                read = read || (at >= first && at < last);
              }
            }
            REQUIRE(kind->needs({first, last}, length) == read);
          }
        }
      }
    }
  }
}
