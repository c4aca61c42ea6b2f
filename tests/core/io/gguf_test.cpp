#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "core/io/gguf.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/gguf_bytes.h"

namespace gguf_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

constexpr std::uint32_t f32 = 0, q4_0 = 2, q4_k = 12;
constexpr std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();

GgufHeader parsed(const std::string& bytes) {
  std::optional<GgufHeader> header = parse_gguf_header(bytes, bytes.size(), "x.gguf");
  REQUIRE(header.has_value());
  return std::move(*header);
}

std::string refusal(const GgufBytes& file) {
  return model_error([&] { parse_gguf_header(file.bytes(), file.bytes().size(), "x.gguf"); });
}

/// Two tensors and one value of every type.
GgufBytes good_file() {
  GgufBytes file;
  file.begin(2, 16)
      .key("general.architecture", "llama")
      .key("u8", std::uint8_t{200})
      .key("i8", std::int8_t{-3})
      .key("u16", std::uint16_t{60'000})
      .key("i16", std::int16_t{-30'000})
      .key("u32", std::uint32_t{4'000'000'000})
      .key("i32", std::int32_t{-7})
      .key("f32", 0.5F)
      .key("yes", true)
      .key("u64", std::uint64_t{1} << 62)
      .key("i64", std::int64_t{-1} << 62)
      .key("f64", 0.1)
      .key("nan", std::numeric_limits<float>::quiet_NaN())
      .key("beyond", huge)
      .list("layers", std::vector<std::uint32_t>{4, 0, 4})
      .list("tokens", std::vector<std::string>{"a", "", "\xC4\xA0the"})
      .tensor("b", {32, 2}, q4_0, 32)
      .tensor("a", {3}, f32, 0)
      .pad()
      .raw("AAAABBBBCCCC")
      .pad()
      .raw(std::string(36, 'q'));
  return file;
}

std::string mutated(std::string bytes, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return std::size_t{random() % n}; };
  constexpr std::uint64_t edges[] = {
      0, 1, 2, 0x7f, 0xff, 0x7fffffff, 0xffffffff, 0x1'0000'0000, huge >> 1, huge};
  for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
    const std::size_t at = below(bytes.size() - 8);
    switch (below(4)) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        std::memcpy(&bytes[at], &edges[below(std::size(edges))], 8);
        break;
      case 2:
        std::memcpy(&bytes[at], &edges[below(std::size(edges))], 4);
        break;
      default:
        bytes.resize(std::max<std::size_t>(16, at));
        break;
    }
  }
  return bytes;
}

}  // namespace

TEST_SUITE("core/io/gguf") {
  TEST_CASE("a header's keys, tensors and data") {
    const std::string bytes = good_file().bytes();
    const GgufHeader header = parsed(bytes);
    REQUIRE(header.tensors.size() == 2);
    CHECK(header.tensors[0].name == "a");
    CHECK(header.tensors[0].shape == std::vector<std::int64_t>{3});
    CHECK(header.tensors[0].bytes == 12);
    CHECK(header.tensors[1].name == "b");
    CHECK(header.tensors[1].shape == std::vector<std::int64_t>{2, 32});  // outermost first
    CHECK(header.tensors[1].elements() == 64);
    CHECK(header.tensors[1].bytes == 36);
    CHECK(gguf_block(header.tensors[1].type)->name == "Q4_0");
    CHECK(bytes.substr(header.data_offset + header.tensors[0].begin, 4) == "AAAA");
    CHECK(bytes.substr(header.data_offset + header.tensors[1].begin, 36) == std::string(36, 'q'));
    CHECK(header.metadata.keys().size() == 16);
  }

  TEST_CASE("values are read as the kind that is wanted") {
    const std::string bytes = good_file().bytes();
    const GgufHeader header = parsed(bytes);
    const GgufMetadata& keys = header.metadata;
    CHECK(keys.text("general.architecture") == "llama");
    CHECK(keys.integer("u8") == 200);
    CHECK(keys.integer("i8") == -3);
    CHECK(keys.integer("u16") == 60'000);
    CHECK(keys.integer("i16") == -30'000);
    CHECK(keys.integer("u32") == 4'000'000'000);
    CHECK(keys.integer("i32") == -7);
    CHECK(keys.integer("u64") == std::int64_t{1} << 62);
    CHECK(keys.integer("i64") == -(std::int64_t{1} << 62));
    CHECK(keys.integer("yes") == 1);
    CHECK(keys.real("f32") == 0.5);
    CHECK(keys.real("f64") == 0.1);
    CHECK(keys.real("i32") == -7.0);
    CHECK(keys.flag("yes") == true);
    CHECK(keys.integers("layers") == std::vector<std::int64_t>{4, 0, 4});
    CHECK(keys.integers("u8") == std::vector<std::int64_t>{200});
    CHECK(keys.reals("layers") == std::vector<double>{4, 0, 4});
    CHECK(keys.is_list("layers"));
    CHECK_FALSE(keys.is_list("u8"));
    CHECK(keys.texts("tokens") == std::vector<std::string_view>{"a", "", "\xC4\xA0the"});
    CHECK(keys.texts("general.architecture") == std::vector<std::string_view>{"llama"});
    CHECK_FALSE(keys.integer("none").has_value());
    CHECK_FALSE(keys.text("none").has_value());
    CHECK(keys.integers("none").empty());

    CHECK(model_error([&] { keys.integer("general.architecture"); }) ==
          "x.gguf: key \"general.architecture\" must be a whole number of 63 bits, is text");
    CHECK(contains(model_error([&] { keys.integer("beyond"); }), "63 bits, is u64"));
    CHECK(contains(model_error([&] { keys.integer("layers"); }), "is a list of u32"));
    CHECK(contains(model_error([&] { keys.integer("f32"); }), "is f32"));
    CHECK(contains(model_error([&] { keys.text("u8"); }), "must be text, is u8"));
    CHECK(contains(model_error([&] { keys.flag("u8"); }), "must be true or false, is u8"));
    CHECK(contains(model_error([&] { keys.integers("tokens"); }), "is a list of text"));
    CHECK(contains(model_error([&] { keys.texts("layers"); }), "must be texts, is a list of u32"));
    CHECK(contains(model_error([&] { keys.real("yes"); }), "must be a finite number, is true or"));
    CHECK(contains(model_error([&] { keys.real("nan"); }), "must be a finite number, is f32"));
    CHECK(keys.reals("nan").size() == 1);
  }

  TEST_CASE("each rule of the format is a refusal that names it, in files of under 200 bytes") {
    const std::string name_256(256, 'n');
    const auto with_tensor = [](const std::vector<std::uint64_t>& dimensions, std::uint32_t type,
                                std::uint64_t offset) {
      return GgufBytes()
          .begin(1, 0)
          .tensor("t", dimensions, type, offset)
          .pad()
          .raw(std::string(64, 'x'));
    };
    const auto with_key = [] { return GgufBytes().begin(0, 1); };
    const std::pair<GgufBytes, std::string> cases[] = {
        {GgufBytes().raw("GGML").add(3U), "not a GGUF file"},
        {GgufBytes().raw("GGU"), "the magic number of 4 bytes goes past the end of the file of 3"},
        {GgufBytes().begin(0, 0, 1), "GGUF version 1, versions 2 and 3 are read; convert"},
        {GgufBytes().begin(0, 0, 4), "GGUF version 4"},
        {GgufBytes().begin(0, 0, 0), "GGUF version 0"},
        {GgufBytes().begin(0, 0, 0x03000000), "big-endian"},
        {GgufBytes().begin(1'000'001, 0), "1000001 tensors, at most 1000000"},
        {GgufBytes().begin(huge, 0), "tensors, at most 1000000"},
        {GgufBytes().begin(1'000'000, 0), "1000000 tensors do not fit into the file of 24 bytes"},
        {GgufBytes().begin(0, 65'537), "65537 keys, at most 65536"},
        {GgufBytes().begin(0, 65'536), "65536 keys do not fit into the file"},
        {with_key().text("").add(4U).raw(std::string(9, 'x')), "a key of 0 bytes"},
        {with_key().add(huge).raw("key and more of it"), "goes past the end of the file"},
        {with_key().add(std::uint64_t{1} << 62).raw("key and more of it"), "goes past the end"},
        {with_key().text("k").add(13U).add(1U).add(1U), "values have types 0 to 12, it has 13"},
        {with_key().text("k").add(~0U).add(1U).add(1U), "it has 4294967295"},
        {with_key().text("k").add(9U).add(9U).add(std::uint64_t{1}), "a list of lists"},
        {with_key().text("k").add(9U).add(4U).add(huge), "a list of 18446744073709551615 values"},
        {with_key().text("k").add(9U).add(10U).add(huge / 8 + 2), "does not fit into the file"},
        {with_key().text("k").add(9U).add(8U).add(huge), "does not fit into the file"},
        {with_key().text("k").add(8U).add(huge), "goes past the end"},
        {with_key().key("k", std::uint8_t{1}).raw(""), ""},
        {with_key().text("k").add(7U).add(std::uint8_t{2}), "true is 1 and false 0"},
        {GgufBytes().begin(0, 2).key("k", 1U).key("k", 2U), "key \"k\" is there twice"},
        {with_key().key("general.alignment", 0x80000000U), "must be a power of two from 8 to"},
        {with_key().key("general.alignment", 0U), "must be a power of two"},
        {with_key().key("general.alignment", 48U), "must be a power of two"},
        {with_key().key("general.alignment", -8), "must be a power of two"},
        {with_key().key("general.alignment", "32"), "must be a whole number of 63 bits, is text"},
        {GgufBytes().begin(1, 0).text("").raw(std::string(40, '\0')), "name of 0 bytes"},
        {with_tensor({1, 1, 1, 1, 1}, f32, 0), "5 dimensions, at most 4"},
        {with_tensor({0}, f32, 0), "a dimension of 0"},
        {with_tensor({huge}, f32, 0), "a dimension of 18446744073709551615"},
        {with_tensor({std::uint64_t{1} << 62, 4}, f32, 0), "overflows 2^64 elements"},
        {with_tensor({std::uint64_t{1} << 62, 2}, f32, 0), "overflows 2^64 bytes"},
        {with_tensor({std::uint64_t{1} << 60, 1}, f32, 0), "go past the end of the file"},
        {with_tensor({33}, q4_0, 0), "rows of 33 elements are no whole blocks of 32, of Q4_0"},
        {with_tensor({32, 8}, q4_k, 0), "rows of 32 elements are no whole blocks of 256, of Q4_K"},
        {with_tensor({4}, f32, 4), "its offset 4 is no multiple of 32"},
        {with_tensor({4}, f32, 64), "go past the end of the file"},
        {with_tensor({4}, f32, huge - 31), "go past the end of the file"},
        {with_tensor({17}, f32, 0), "was the download completed?"},
        {GgufBytes().begin(1, 0).tensor("t", {4}, f32, 0), "the file ends before its data"},
        {GgufBytes()
             .begin(2, 0)
             .tensor("t", {4}, f32, 0)
             .tensor("t", {4}, f32, 32)
             .pad()
             .raw(std::string(64, 'x')),
         "tensor \"t\": its name is there twice"},
        {GgufBytes()
             .begin(2, 0)
             .tensor("a", {9}, f32, 0)
             .tensor("b", {4}, f32, 32)
             .pad()
             .raw(std::string(64, 'x')),
         "tensor \"b\": its data overlaps another tensor's"},
        {GgufBytes()
             .begin(2, 0)
             .tensor("a", {4}, f32, 0)
             .tensor("b", {4}, f32, 0)
             .pad()
             .raw(std::string(64, 'x')),
         "its data overlaps another tensor's"},
    };
    for (const auto& [file, text] : cases) {
      CAPTURE(text);
      CHECK(file.bytes().size() < 200);
      const std::string refused = refusal(file);
      if (text.empty()) {
        CHECK(refused.empty());
      } else {
        CHECK(contains(refused, text));
        CHECK(contains(refused, "x.gguf: "));
      }
    }
    // Of a file that is long enough to hold them.
    const auto long_file = [](const GgufBytes& front) {
      return model_error([&] { parse_gguf_header(front.bytes(), huge, "x.gguf"); });
    };
    constexpr std::uint64_t beyond_header = gguf_header_max + 1;
    CHECK(contains(long_file(with_key().add(beyond_header).raw("key and more")),
                   "ends after the 268435456 that a header may have"));
    CHECK(contains(long_file(with_key().text("k").add(9U).add(0U).add(beyond_header)),
                   "a list of 268435457 values does not fit into the header of 268435456 bytes"));
    CHECK(contains(long_file(with_key().text(std::string(65'536, 'k')).add(4U).add(1U)),
                   "a key of 65536 bytes, keys have 1 to 65535"));
    CHECK(contains(refusal(GgufBytes().begin(1, 0).text(name_256).raw(std::string(40, '\0'))),
                   "name of 256 bytes, names have 1 to 255"));
  }

  TEST_CASE("a tensor of a type that is not read is no fault of the file") {
    for (const std::uint32_t type : {4U, 5U, 31U, 36U, 38U, 43U, ~0U}) {
      const GgufBytes file =
          GgufBytes().begin(1, 0).tensor("t", {32}, type, 0).pad().raw(std::string(32, 'x'));
      const GgufHeader header = parsed(file.bytes());
      CHECK(header.tensors.at(0).fault == fmt::format("its type {} is not read", type));
    }
  }

  TEST_CASE("a header that goes on after what was read asks for more, at every length") {
    const std::string bytes = good_file().bytes();
    const std::uint64_t header_end = parsed(bytes).data_offset;
    std::size_t incomplete = 0;
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      const bool is_whole =
          parse_gguf_header(bytes.substr(0, length), bytes.size(), "x.gguf").has_value();
      incomplete += is_whole ? 0 : 1;
      if (length >= header_end) CHECK(is_whole);
    }
    CHECK(incomplete > header_end - 32);
  }

  TEST_CASE("damaged headers are refused, or what they state lies in the file") {
    const std::string good = good_file().bytes();
    std::mt19937 random(7);
    int legal = 0;
    for (int round = 0; round < 30'000; ++round) {
      const std::string bytes = mutated(good, random);
      const std::string error = model_error([&] {
        const auto header = parse_gguf_header(bytes, bytes.size(), "x.gguf");
        if (!header) return;  // cannot be: all of the file was given
        ++legal;
        std::uint64_t end = 0;
        for (const GgufTensor& tensor : header->tensors) {
          REQUIRE(tensor.begin >= end);
          end = tensor.begin + tensor.bytes;
          REQUIRE(header->data_offset + end <= bytes.size());
        }
        for (const std::string_view key : header->metadata.keys()) {
          for (const std::string_view text : header->metadata.texts(key)) {
            REQUIRE(text.data() + text.size() <= bytes.data() + bytes.size());
          }
        }
      });
      if (!error.empty()) REQUIRE(error.starts_with("x.gguf: "));
    }
    CHECK(legal > 1000);
  }

  TEST_CASE("a file of two parts is one model, whichever part is named") {
    const TemporaryFolder folder;
    const auto part = [](std::uint16_t number, const std::string& tensor, const std::string& data) {
      GgufBytes file;
      file.begin(1, number == 0 ? 4 : 2);
      if (number == 0) file.key("general.architecture", "llama").key("split.tensors.count", 2);
      file.key("split.no", number).key("split.count", std::uint16_t{2});
      return file.tensor(tensor, {data.size() / 4}, f32, 0).pad().raw(data).bytes();
    };
    const auto first = folder.write("m-00001-of-00002.gguf", part(0, "a", "AAAA"));
    const auto second = folder.write("m-00002-of-00002.gguf", part(1, "b", "BBBBCCCC"));
    for (const auto& named : {first, second}) {
      GgufFiles files(named);
      CHECK(files.paths() == std::vector{first, second});
      CHECK(files.metadata().text("general.architecture") == "llama");
      CHECK(files.tensors().size() == 2);
      CHECK(files.bytes() == 12);
      CHECK(files.path_of("b") == second);
      REQUIRE(files.find("b") != nullptr);
      CHECK(files.find("c") == nullptr);
      files.map();
      GgufFiles moved = std::move(files);
      CHECK(moved.view("b").size() == 8);
      CHECK(std::memcmp(moved.view("a").data(), "AAAA", 4) == 0);
      CHECK(moved.metadata().text("general.architecture") == "llama");
      moved.drop("b");
      CHECK(std::memcmp(moved.view("b").data(), "BBBBCCCC", 8) == 0);
    }

    folder.write("m-00002-of-00002.gguf", part(1, "a", "BBBB"));
    CHECK(contains(model_error([&] { GgufFiles files(first); }), "tensor \"a\": also in"));
    folder.write("m-00002-of-00002.gguf", part(0, "b", "BBBB"));
    CHECK(contains(model_error([&] { GgufFiles files(first); }),
                   "it says that it is part 1 of 2, by its name it is part 2 of 2"));
    std::filesystem::remove(second);
    CHECK(contains(model_error([&] { GgufFiles files(first); }),
                   "m-00002-of-00002.gguf: part 2 of 2 is not there; was the download completed?"));
    const auto renamed = folder.write("m.gguf", part(0, "a", "AAAA"));
    CHECK(
        contains(model_error([&] { GgufFiles files(renamed); }), "part 1 of 1; parts are PREFIX"));
    GgufBytes far;
    far.begin(0, 1).key("split.no", std::numeric_limits<std::int64_t>::max());
    const auto last = folder.write("o.gguf", far.bytes());
    CHECK(contains(model_error([&] { GgufFiles files(last); }), "part 9223372036854775808 of 1"));
    folder.write("n-00001-of-00002.gguf", part(0, "a", "AAAA"));
    GgufBytes more;
    more.begin(2, 2).key("split.no", 1).key("split.count", 2);
    more.tensor("b", {1}, f32, 0).tensor("c", {1}, f32, 32).pad().raw("BBBB").pad().raw("CCCC");
    folder.write("n-00002-of-00002.gguf", more.bytes());
    CHECK(contains(model_error([&] { GgufFiles files(folder.path() / "n-00001-of-00002.gguf"); }),
                   "says 2, 2 parts hold 3"));
  }

  TEST_CASE("a name whose numbers no part has is that of a whole file") {
    const TemporaryFolder folder;
    for (const char* name :
         {"m-00000-of-00000.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf"}) {
      CAPTURE(name);
      const GgufFiles files(folder.write(name, GgufBytes().begin(0, 0).bytes()));
      CHECK(files.paths().size() == 1);
    }
    CHECK(gguf_split_name("m-00002-of-00002.gguf")->of(1) == "m-00001-of-00002.gguf");
  }

  TEST_CASE("a header of many megabytes is read as a short one is") {
    const TemporaryFolder folder;
    std::vector<std::string> tokens;
    for (int i = 0; i < 300'000; ++i) tokens.push_back("token " + std::to_string(i));
    GgufBytes file;
    file.begin(1, 1)
        .list("tokenizer.ggml.tokens", tokens)
        .tensor("t", {2}, f32, 0)
        .pad()
        .raw("AAAABBBB");
    const GgufFiles files(folder.write("m.gguf", file.bytes()));
    const std::vector<std::string_view> read = files.metadata().texts("tokenizer.ggml.tokens");
    REQUIRE(read.size() == tokens.size());
    CHECK(std::equal(read.begin(), read.end(), tokens.begin()));
  }
}

}  // namespace gguf_test
