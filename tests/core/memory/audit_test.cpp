#include <doctest/doctest.h>

#include <string>

#include "core/base/error.h"
#include "core/memory/memory.h"

using namespace hyb;

namespace {

const MemoryLayout sizes = flat_layout({.pages = 6, .slots = 3, .page_tokens = 4});

std::string finding(const MemoryPool& pool, std::span<const Memory* const> memories,
                    std::span<const Checkpoint* const> checkpoints) {
  try {
    pool.audit(memories, checkpoints);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("core/memory/audit") {
  TEST_CASE("every holder has to be named, and none twice") {
    MemoryPool pool(sizes);
    Memory memory = *pool.start();
    REQUIRE(memory.reserve(6));
    memory.keep(6);
    const Checkpoint checkpoint = *memory.checkpoint();
    const Memory* one[] = {&memory};
    const Memory* twice[] = {&memory, &memory};
    const Checkpoint* saved[] = {&checkpoint};
    CHECK(finding(pool, one, saved) == "");
    CHECK(finding(pool, one, {}).find("has 1 holders and counts 2") != std::string::npos);
    CHECK(finding(pool, {}, saved).find("memory: page 0 has 1 holders") != std::string::npos);
    CHECK(finding(pool, twice, saved).find("has 3 holders and counts 2") != std::string::npos);
  }

  TEST_CASE("what was released is nobody's") {
    MemoryPool pool(sizes);
    Memory memory = *pool.start();
    REQUIRE(memory.reserve(6));
    memory = Memory();
    const Memory* released[] = {&memory};
    CHECK(finding(pool, released, {}) == "");
  }
}
