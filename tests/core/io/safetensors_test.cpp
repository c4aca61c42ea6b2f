#include <cstring>
#include <random>

#include <doctest/doctest.h>

#include "core/io/safetensors.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace safetensors_test {

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

  TEST_CASE("tensors are ordered by data offset") {
    const TensorHeader header = parse_tensor_header(good_header, 12, "file");
    REQUIRE(header.tensors.size() == 2);
    CHECK(header.tensors[0].name == "a");
    CHECK(header.tensors[1].size_bytes() == 8);
    CHECK(header.metadata.at("format") == "pt");
  }
}

namespace {

std::string error_of_bytes(std::string_view bytes) {
  const TemporaryFolder folder;
  const auto path = folder.write("m.safetensors", bytes);
  const std::string error = model_error([&] { SafetensorsFile file(path); });
  if (!error.empty()) CHECK(error.starts_with(path.string() + ": "));
  return error;
}

std::string error_of(std::string_view header, std::string_view data = "") {
  return error_of_bytes(safetensors_bytes(header, data));
}

std::string one(std::string_view entry) { return "{\"t\":" + std::string(entry) + "}"; }

}  // namespace

TEST_SUITE("core/io/safetensors") {
  TEST_CASE("tensors are views into the file, whatever their order in the header") {
    const TemporaryFolder folder;
    std::string data(12, '\0');
    const float values[] = {1.5F, -2.0F};
    std::memcpy(data.data() + 4, values, 8);
    data[0] = 7;
    SafetensorsFile file(folder.write("m.safetensors", safetensors_bytes(good_header, data)));
    REQUIRE(file.tensors().size() == 2);
    CHECK(file.tensors()[0].name == "a");
    CHECK(file.metadata().at("format") == "pt");
    file.map();
    const auto a = file.view("a");
    const auto b = file.view("b");
    REQUIRE(a);
    REQUIRE(b);
    CHECK(a->dtype == DType::bf16);
    CHECK(std::vector(a->shape.begin(), a->shape.end()) == std::vector<std::int64_t>{1, 2});
    CHECK(a->bytes[0] == std::byte{7});
    CHECK(std::memcmp(b->bytes.data(), values, 8) == 0);
    CHECK(!file.view("c"));
    file.drop(*file.find("b"));
    CHECK(std::memcmp(b->bytes.data(), values, 8) == 0);
    SafetensorsFile moved = std::move(file);
    CHECK(moved.view("b")->bytes.data() == b->bytes.data());
  }

  TEST_CASE("scalars, empty tensors, no tensors and padding are legal") {
    CHECK(error_of("{}") == "");
    CHECK(error_of("{}  \n ") == "");
    CHECK(error_of(R"({"__metadata__":{}})") == "");
    CHECK(error_of(one(R"({"dtype":"F32","shape":[],"data_offsets":[0,4]})"), "1234") == "");
    CHECK(error_of(one(R"({"dtype":"F32","shape":[0,3],"data_offsets":[0,0]})")) == "");
    CHECK(error_of(R"({"e":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},)"
                   R"("t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                   "12") == "");
    CHECK(error_of(R"({"t":{"shape":[2],"data_offsets":[0,2],"dtype":"BOOL"}} )", "12") == "");
  }

  TEST_CASE("an impossible length is refused before anything is read") {
    CHECK(contains(error_of_bytes(""), "0 bytes"));
    CHECK(contains(error_of_bytes("1234567"), "7 bytes"));
    CHECK(contains(error_of_bytes(std::string(8, '\0')), "length is 0"));
    CHECK(contains(error_of_bytes(std::string("\x03\0\0\0\0\0\0\0{}", 10)), "past the end"));
    CHECK(contains(error_of_bytes(std::string(8, '\xff') + "{}"), "18446744073709551615"));
    CHECK(contains(error_of_bytes(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10)), "100000001"));
  }

  TEST_CASE("a header that is not the right kind of JSON") {
    CHECK(contains(error_of(" {}"), "begin with '{'"));
    CHECK(contains(error_of("[]"), "begin with '{'"));
    CHECK(contains(error_of("\xEF\xBB\xBF{}"), "begin with '{'"));
    CHECK(contains(error_of("{"), "JSON"));
    CHECK(contains(error_of("{} x"), "JSON"));
    CHECK(contains(error_of(std::string_view("{}\0x", 4)), "byte 2"));
    CHECK(contains(error_of("{\"\xff\":1}"), "UTF-8"));
    CHECK(contains(error_of("{}{}"), "JSON"));
    CHECK(contains(error_of(R"({"a":5})"), "must be an object"));
    CHECK(contains(error_of(R"({"a":null})"), "must be an object"));
    CHECK(contains(error_of(R"({"a":[]})"), "must be an object"));
    std::string bomb = R"({"a":)";
    bomb.append(1'000'000, '[');
    CHECK(contains(error_of(bomb), "must be an object"));
    bomb = one(R"({"dtype":"U8","shape":)" + std::string(100'000, '['));
    CHECK(contains(error_of(bomb), "has a list"));
    CHECK(contains(error_of(R"({"__metadata__":{"a":{"b":1}}})"), "must be text"));
    CHECK(contains(error_of(R"({"__metadata__":{"a":1}})"), "__metadata__"));
    CHECK(contains(error_of(R"({"__metadata__":[]})"), "__metadata__"));
  }

  TEST_CASE("a tensor of another dtype is listed with a fault; its size is not checked") {
    const TemporaryFolder folder;
    const SafetensorsFile file(folder.write(
        "m.safetensors",
        safetensors_bytes(R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]},)"
                          R"("b":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[2,4]},)"
                          R"("c":{"dtype":"C64","shape":[1],"data_offsets":[4,12]},)"
                          R"("d":{"dtype":"U8","shape":[1],"data_offsets":[12,13]}})",
                          "0123456789abc")));
    REQUIRE(file.tensors().size() == 4);
    CHECK(file.find("a")->dtype_name() == "F4");
    CHECK(file.find("a")->fault == "its dtype is not read");
    CHECK(file.find("b")->dtype_name() == "F8_E8M0");
    CHECK(file.find("c")->fault != "");
    CHECK(file.find("d")->dtype_name() == "U8");
    CHECK(file.find("d")->fault == "");
    CHECK(contains(error_of(one(R"({"dtype":"","shape":[2],"data_offsets":[0,2]})"), "12"),
                   "dtype is empty"));
    CHECK(contains(error_of(one(R"({"dtype":"F4","shape":[4],"data_offsets":[0,1]})"), "12"),
                   "trailing bytes"));
  }

  TEST_CASE("a name that is there twice is a fault of both tensors, of metadata the last counts") {
    const TemporaryFolder folder;
    const SafetensorsFile file(
        folder.write("m.safetensors",
                     safetensors_bytes(R"({"__metadata__":{"a":"1","a":"2"},)"
                                       R"("t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                       R"("t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
                                       R"("u":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                                       "012")));
    REQUIRE(file.tensors().size() == 3);
    CHECK(file.tensors()[0].fault == "its name is there twice");
    CHECK(file.tensors()[1].fault == "its name is there twice");
    CHECK(file.find("u")->fault == "");
    CHECK(file.metadata().at("a") == "2");
  }

  TEST_CASE("a tensor's own keys are unique") {
    CHECK(contains(error_of(one(R"({"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]})")),
                   "duplicate key \"dtype\""));
    CHECK(contains(error_of(one(R"({"dtype":"U8","shape":[],"shape":[],"data_offsets":[0,1]})")),
                   "duplicate key \"shape\""));
    CHECK(contains(
        error_of(one(R"({"dtype":"U8","shape":[],"data_offsets":[0,1],"data_offsets":[0,1]})")),
        "duplicate key \"data_offsets\""));
  }

  TEST_CASE("a tensor has a known dtype, a shape and two offsets, and nothing else") {
    const auto error = [](std::string_view entry) { return error_of(one(entry), "12"); };
    CHECK(contains(error(R"({"dtype":3,"shape":[2],"data_offsets":[0,2]})"), "dtype must be text"));
    CHECK(contains(error(R"({"shape":[2],"data_offsets":[0,2]})"), "dtype is missing"));
    CHECK(contains(error(R"({"dtype":"U8","data_offsets":[0,2]})"), "shape is missing"));
    CHECK(contains(error(R"({"dtype":"U8","shape":[2]})"), "data_offsets is missing"));
    CHECK(contains(error(R"({"dtype":"U8","shape":2,"data_offsets":[0,2]})"), "shape must be a"));
    CHECK(contains(error(R"({"dtype":"U8","shape":[-2],"data_offsets":[0,2]})"), "-2"));
    CHECK(contains(error(R"({"dtype":"U8","shape":[2.0],"data_offsets":[0,2]})"), "whole"));
    CHECK(contains(error(R"({"dtype":"U8","shape":["2"],"data_offsets":[0,2]})"), "whole"));
    CHECK(contains(error(R"({"dtype":"U8","shape":[2],"data_offsets":[0]})"), "has 1"));
    CHECK(contains(error(R"({"dtype":"U8","shape":[2],"data_offsets":[0,2,2]})"), "more"));
    CHECK(contains(error(R"({"dtype":"U8","shape":[2],"data_offsets":[-1,1]})"), "-1"));
    CHECK(contains(error(R"({"dtype":"U8","shape":[2],"data_offsets":[0,1e30]})"), "whole"));
    CHECK(contains(error(R"({"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":1})"), "\"x\""));
    const std::string ones = "[1" + std::string(200, ' ') + [] {
      std::string rest;
      for (int i = 0; i < 99; ++i) rest += ",1";
      return rest;
    }() + "]";
    CHECK(contains(error(R"({"dtype":"U8","data_offsets":[0,1],"shape":)" + ones + "}"), "64 dim"));
  }

  TEST_CASE("sizes neither overflow nor contradict each other") {
    const auto error = [](std::string_view entry) { return error_of(one(entry), "1234"); };
    CHECK(contains(error(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), "8 bytes"));
    CHECK(contains(error(R"({"dtype":"U8","shape":[4],"data_offsets":[4,0]})"), "before they"));
    CHECK(contains(error(R"({"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]})"),
                   "overflows"));
    CHECK(contains(error(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})"),
                   "overflows"));
    CHECK(contains(error(R"({"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,0]})"),
                   "9223372036854775808"));
  }

  TEST_CASE("the data are covered from the first to the last byte") {
    const auto two = [](int begin, int end) {
      return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[)" +
             std::to_string(end - begin) + R"(],"data_offsets":[)" + std::to_string(begin) + "," +
             std::to_string(end) + "]}}";
    };
    CHECK(error_of(two(2, 4), "1234") == "");
    CHECK(contains(error_of(two(3, 4), "1234"), "gap"));
    CHECK(contains(error_of(two(1, 4), "1234"), "overlap"));
    CHECK(contains(error_of(two(0, 2), "12"), "overlap"));
    CHECK(contains(error_of(two(2, 4), "123"), "truncated"));
    CHECK(contains(error_of(two(2, 4), "12345"), "trailing"));
    CHECK(contains(error_of(one(R"({"dtype":"U8","shape":[2],"data_offsets":[1,3]})"), "123"),
                   "gap"));
    CHECK(contains(error_of("{}", "1"), "trailing"));
  }

  TEST_CASE("names that would reach a terminal are made harmless") {
    const std::string error = error_of("{\"\\u001b[2J\\u009b\":5}");
    CHECK(contains(error, "\"\\x1b[2J\\xc2\\x9b\""));
    const std::string name(5000, 'x');
    CHECK(error_of("{\"" + name + "\":5}").size() < 600);
  }

  TEST_CASE("a missing file, or a folder, is an error that names it") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "x.safetensors";
    CHECK(contains(model_error([&] { SafetensorsFile file(path); }), path.string()));
    CHECK(contains(model_error([&] { SafetensorsFile file(folder.path()); }), "not a regular"));
  }

  TEST_CASE("a file that changed after its header was read is not mapped") {
    const TemporaryFolder folder;
    const std::string header = one(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})");
    const auto path = folder.write("m.safetensors", safetensors_bytes(header, "1234"));
    SafetensorsFile file(path);
    std::filesystem::resize_file(path, 20);
    CHECK(contains(model_error([&] { file.map(); }), "changed"));
  }

  TEST_CASE("mutated files are an error or a file whose tensors all lie inside it") {
    const TemporaryFolder folder;
    const std::string good = safetensors_bytes(good_header, "123456789012");
    std::mt19937 random(1);
    int legal = 0;
    for (int round = 0; round < 200; ++round) {
      std::string bytes = good;
      bytes[random() % (round % 2 == 0 ? 9 : bytes.size())] = static_cast<char>(random());
      if (round % 5 == 0) bytes.resize(random() % bytes.size());
      const auto path = folder.write("m.safetensors", bytes);
      const std::string error = model_error([&] {
        SafetensorsFile file(path);
        file.map();
        std::size_t sum = 0;
        for (const TensorInfo& tensor : file.tensors()) {
          const auto view = file.view(tensor).bytes;
          sum += view.size();
          for (const std::byte byte : view) sum += std::size_t{byte == std::byte{'!'}};
        }
        CHECK(sum >= 12);
        ++legal;
      });
      if (!error.empty()) CHECK(error.starts_with(path.string()));
    }
    CHECK(legal > 3);  // edits of data and of names
    CHECK(legal < 120);
  }
}

}  // namespace safetensors_test
