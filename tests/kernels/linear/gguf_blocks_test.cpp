#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/io/file.h"
#include "kernels/linear/gguf_blocks.h"

namespace gguf_blocks_test {

using namespace hyb;
using namespace hyb::kernels;

namespace {

constexpr std::size_t blocks = 500;

/// As scripts/golden/make_gguf_blocks.py has it.
std::vector<std::byte> random_bytes(std::uint32_t seed, std::size_t count) {
  std::vector<std::byte> bytes;
  for (std::uint32_t state = seed; bytes.size() < count;) {
    state = state * 1664525U + 1013904223U;
    bytes.push_back(static_cast<std::byte>(state >> 24));
  }
  return bytes;
}

}  // namespace

TEST_SUITE("kernels/linear/gguf_blocks") {
  TEST_CASE("values of every type are libgguf's, bit for bit") {
    const auto goldens = nlohmann::json::parse(
        read_whole_file(std::string(HYB_TESTS_DIR) + "/golden/gguf_blocks.json", 1 << 20));
    CHECK(goldens.size() == 17);
    for (const auto& [name, golden] : goldens.items()) {
      CAPTURE(name);
      const GgufBlock* block = gguf_block(golden.at("type").get<std::uint32_t>());
      REQUIRE(block != nullptr);
      CHECK(block->name == name);
      CHECK(block->elements == golden.at("elements").get<std::uint32_t>());
      CHECK(block->bytes == golden.at("bytes").get<std::uint32_t>());
      REQUIRE(is_gguf_coded(block->type));
      const std::vector<std::byte> bytes =
          random_bytes(golden.at("type").get<std::uint32_t>(), blocks * block->bytes);
      std::vector<float> values(blocks * block->elements);
      read_gguf_values(block->type, bytes.data(), values);
      for (float& value : values) {
        if (std::isnan(value)) value = std::bit_cast<float>(0x7fc00000U);
      }
      for (std::size_t i = 0; i < golden.at("first").size(); ++i) {
        CHECK(fmt::format("{:08x}", std::bit_cast<std::uint32_t>(values[i])) ==
              golden.at("first").at(i).get<std::string>());
      }
      CHECK(fmt::format("{:016x}", checksum(std::as_bytes(std::span(values)))) ==
            golden.at("xxh3").get<std::string>());
    }
  }

  TEST_CASE("types without groups are not read") {
    for (const GgufType type :
         {GgufType::f32, GgufType::bf16, GgufType::i8, GgufType::q8_1, GgufType::q8_k,
          GgufType::iq1_s, GgufType::iq2_xxs, GgufType::iq3_s}) {
      CHECK_FALSE(is_gguf_coded(type));
    }
  }
}

}  // namespace gguf_blocks_test
