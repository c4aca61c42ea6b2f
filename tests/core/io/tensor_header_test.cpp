#include "core/io/tensor_header.h"

#include <doctest/doctest.h>

#include <random>

#include "tests/support/error_text.h"

using namespace hyb;
using namespace hyb::testing;

namespace {

constexpr std::string_view good_header =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},)"
    R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}})";

/// A few edits, mostly with the characters that headers are made of.
std::string mutated(std::string text, std::mt19937& random) {
  constexpr char spice[] = "{}[]\",:0129-.eE\\u tfFBU\xff\x80\0";  // with the NUL in it
  const auto below = [&](std::size_t n) { return std::size_t{random() % n}; };
  for (std::size_t edits = 1 + below(4); edits > 0 && text.size() > 1; --edits) {
    const std::size_t at = below(text.size());
    const char c = spice[below(sizeof spice - 1)];
    switch (below(6)) {
      case 0:
        text[at] = c;
        break;
      case 1:
        text[at] = static_cast<char>(random());
        break;
      case 2:
        text.insert(at, 1, c);
        break;
      case 3:
        text.erase(at, 1 + below(3));
        break;
      case 4:
        text.resize(at + 1);
        break;
      default:
        text.insert(at, text.substr(below(text.size()), below(30)));
        break;
    }
  }
  return text;
}

}  // namespace

TEST_SUITE("core/io/tensor_header") {
  TEST_CASE("mutated headers are an error or cover the data exactly") {
    std::mt19937 random(1);
    int legal = 0;
    for (int round = 0; round < 20'000; ++round) {
      const std::string text = mutated(std::string(good_header), random);
      const std::string error = model_error([&] {
        const TensorHeader header = parse_tensor_header(text, 12, "file");
        std::uint64_t end = 0;
        for (const TensorInfo& tensor : header.tensors) {
          if (tensor.begin != end) FAIL("gap or overlap in " << text);
          end = tensor.end;
        }
        if (end != 12) FAIL("end in " << text);
        ++legal;
      });
      if (!error.empty() && !error.starts_with("file: ")) FAIL("no file in " << error);
    }
    CHECK(legal > 100);    // edits of names and white space
    CHECK(legal < 5'000);  // most others are refused
  }

  TEST_CASE("tensors come in the order of their data") {
    const TensorHeader header = parse_tensor_header(good_header, 12, "file");
    REQUIRE(header.tensors.size() == 2);
    CHECK(header.tensors[0].name == "a");
    CHECK(header.tensors[1].size_bytes() == 8);
    CHECK(header.metadata.at("format") == "pt");
  }
}
