#include "core/io/tensor_files.h"

#include <doctest/doctest.h>

#include <ctime>

#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace tensor_files_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

/// A file whose tensors are one byte each, in the given order, all with the value `fill`.
std::string bytes_file(const std::vector<std::string>& names, char fill) {
  std::string header = "{";
  for (std::size_t i = 0; i < names.size(); ++i) {
    header += (i == 0 ? "\"" : ",\"") + names[i] +
              R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(i) + "," +
              std::to_string(i + 1) + "]}";
  }
  return safetensors_bytes(header + "}", std::string(names.size(), fill));
}

struct Sharded {
  TemporaryFolder folder;

  Sharded() {
    folder.write("one.safetensors", bytes_file({"a", "b"}, '1'));
    folder.write("two.safetensors", bytes_file({"c"}, '2'));
  }
  std::string error(const std::string& index) const {
    folder.write("model.safetensors.index.json", index);
    return model_error([&] { TensorFiles files(folder.path()); });
  }
};

}  // namespace

TEST_SUITE("core/io/tensor_files") {
  TEST_CASE("one file, or several through the index") {
    const Sharded model;
    CHECK(!TensorFiles::are_in(model.folder.path()));
    CHECK(model.error(R"({"metadata":{"total_size":3,"x":[{}]},"weight_map":{"a":"one.safetensors",
        "b":"one.safetensors","c":"two.safetensors"},"more":1})") == "");
    TensorFiles files(model.folder.path());
    CHECK(TensorFiles::are_in(model.folder.path()));
    CHECK(files.names() == std::vector<std::string_view>{"a", "b", "c"});
    CHECK(files.bytes() == 3);
    REQUIRE(files.find("c"));
    CHECK(files.find("c")->dtype == DType::u8);
    CHECK(files.path_of("c").filename() == "two.safetensors");
    CHECK(files.find("d") == nullptr);
    files.map();
    CHECK(files.view("b").bytes[0] == std::byte{'1'});
    CHECK(files.view("c").bytes[0] == std::byte{'2'});
    files.drop("c");
    CHECK(files.view("c").bytes[0] == std::byte{'2'});

    model.folder.write("model.safetensors", bytes_file({"z"}, '3'));
    CHECK(TensorFiles(model.folder.path()).names() == std::vector<std::string_view>{"z"});
  }

  TEST_CASE("of a missing file that holds nothing that is needed nothing is read") {
    const Sharded model;
    CHECK(model.error(R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors",
        "c":"two.safetensors","x.1":"six.safetensors","x.2":"six.safetensors"}})") != "");
    const auto is_unneeded = [](std::string_view name) { return name.starts_with("x."); };
    CHECK(TensorFiles(model.folder.path(), is_unneeded).names() ==
          std::vector<std::string_view>{"a", "b", "c"});
    CHECK(TensorFiles::are_in(model.folder.path(), is_unneeded));
    CHECK(!TensorFiles::are_in(model.folder.path()));
    const auto needs_one = [](std::string_view name) { return name == "x.1"; };
    CHECK(TensorFiles::missing_in(model.folder.path(), needs_one)->names ==
          std::vector<std::string>{"six.safetensors"});
    CHECK(contains(model_error([&] { TensorFiles files(model.folder.path(), needs_one); }),
                   "1 of the 3 files"));
  }

  TEST_CASE("a tensor in another listed file is used, one in none is reported, in two an error") {
    const Sharded model;
    CHECK(model.error(R"({"weight_map":{"a":"two.safetensors","b":"one.safetensors",
        "c":"two.safetensors"}})") == "");
    TensorFiles files(model.folder.path());
    CHECK(files.path_of("a").filename() == "one.safetensors");

    CHECK(model.error(R"({"weight_map":{"a":"one.safetensors","d":"one.safetensors"}})") == "");
    CHECK(TensorFiles(model.folder.path()).find("d") == nullptr);
    model.folder.write("three.safetensors", bytes_file({"a"}, '3'));
    const std::string twice = model.error(R"({"weight_map":{"a":"one.safetensors",
        "b":"three.safetensors","c":"two.safetensors"}})");
    CHECK(contains(twice, "tensor \"a\": also in"));
    CHECK(contains(twice, "one.safetensors"));
    CHECK(contains(twice, "three.safetensors"));
  }

  TEST_CASE("tensors that the index does not list are used") {
    const Sharded model;
    CHECK(model.error(R"({"weight_map":{"a":"one.safetensors"}})") == "");
    CHECK(TensorFiles(model.folder.path()).find("b") != nullptr);
  }

  TEST_CASE("a missing file is named, and so is what was looked for") {
    const Sharded model;
    const std::string error = model.error(R"({"weight_map":{"a":"four.safetensors"}})");
    CHECK(contains(error, "1 of the 1 files that it lists are not in the folder"));
    CHECK(contains(error, "\"four.safetensors\""));
    CHECK(contains(error, "model.safetensors.index.json"));
    const TemporaryFolder empty;
    CHECK(contains(model_error([&] { TensorFiles files(empty.path()); }),
                   "looked for model.safetensors and model.safetensors.index.json; other formats "
                   "(.bin, .pt) are not read; a .gguf file is named itself"));
    std::filesystem::create_symlink("../blobs/7", empty.path() / "model.safetensors");
    CHECK(contains(model_error([&] { TensorFiles files(empty.path()); }), "blobs/7"));
  }

  TEST_CASE("what a download has not brought yet is counted, with the size that the index states") {
    const Sharded model;
    CHECK(!TensorFiles::missing_in(model.folder.path()));
    model.folder.write("model.safetensors.index.json",
                       R"({"metadata":{"total_size":12345678901,"x":{"total_size":3}},
                           "weight_map":{"a":"one.safetensors","b":"three.safetensors",
                                         "c":"four.safetensors"}})");
    CHECK(!TensorFiles::are_in(model.folder.path()));
    const auto missing = TensorFiles::missing_in(model.folder.path());
    REQUIRE(missing);
    CHECK(missing->listed == 3);
    CHECK(missing->names == std::vector<std::string>{"four.safetensors", "three.safetensors"});
    CHECK(missing->total_bytes == 12345678901);
    model.folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"five"}})");
    CHECK(!TensorFiles::missing_in(model.folder.path())->total_bytes);
    model.folder.write("model.safetensors", bytes_file({"a"}, '1'));
    CHECK(!TensorFiles::missing_in(model.folder.path()));
    CHECK(TensorFiles::are_in(model.folder.path()));
  }

  TEST_CASE("an adapter beside the weights is not passed over, one that has no config is none") {
    const TemporaryFolder folder;
    folder.write("model.safetensors", bytes_file({"a"}, '1'));
    folder.write("adapter_model.safetensors", bytes_file({"b"}, '1'));
    CHECK(model_error([&] { TensorFiles files(folder.path()); }) == "");
    folder.write("adapter_config.json", "{}");
    const std::string refused = model_error([&] { TensorFiles files(folder.path()); });
    CHECK(contains(refused, "beside the weights, \"adapter_model.safetensors\" is an adapter"));
    std::filesystem::remove(folder.path() / "adapter_model.safetensors");
    CHECK(model_error([&] { TensorFiles files(folder.path()); }) == "");
  }

  TEST_CASE("a pointer of Git LFS in place of the weights or the index is named") {
    const std::string pointer =
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
    const Sharded model;
    CHECK(contains(model.error(pointer), "index.json: is a pointer of Git LFS"));
    model.folder.write("two.safetensors", pointer);
    CHECK(contains(model.error(R"({"weight_map":{"a":"one.safetensors","c":"two.safetensors"}})"),
                   "two.safetensors: is a pointer of Git LFS"));
  }

  TEST_CASE("a malformed index is an error") {
    const Sharded model;
    for (const char* name :
         {"../one.safetensors", "/etc/passwd", "..", ".", "", "a/b", "x\\u0000"}) {
      CHECK(contains(model.error(R"({"weight_map":{"a":")" + std::string(name) + "\"}}"),
                     "not the plain name"));
    }
    CHECK(contains(model.error("{}"), "weight_map is missing"));
    CHECK(contains(model.error(R"({"weight_map":{}})"), "weight_map is missing or empty"));
    CHECK(contains(model.error(R"({"weight_map":[]})"), "weight_map must be an object"));
    CHECK(contains(model.error(R"({"weight_map":"a"})"), "weight_map must be an object"));
    CHECK(contains(model.error(R"({"weight_map":{"a":1}})"), "tensor \"a\": the file name"));
    CHECK(contains(model.error(R"({"weight_map":{"a":{"b":"c"}}})"), "tensor \"a\": the file"));
    CHECK(contains(model.error("[]"), "must be a JSON object"));
    CHECK(contains(model.error("5"), "must be a JSON object"));
    CHECK(contains(model.error("{"), "not valid JSON"));
    CHECK(contains(model.error(std::string("{}\0", 3)), "NUL"));
    CHECK(contains(model.error("{\"x\":" + std::string(100'000, '[')), "nested deeper"));
    CHECK(model.error(R"({"weight_map":{"a":"two.safetensors","a":"one.safetensors"}})") == "");
    CHECK(contains(model.error(R"({"weight_map":{"a":"one.safetensors"},"weight_map":{"a":"b"}})"),
                   "duplicate"));
  }

  TEST_CASE("the header of the largest published model is read in well under a second") {
    constexpr int tensors = 165'860;
    std::string header = "{";
    for (int i = 0; i < tensors; ++i) {
      const std::string begin = std::to_string(i * 2);
      const std::string end = std::to_string(i * 2 + 2);
      header += (i == 0 ? "" : ",") + std::string("\"backbone.layers.") + std::to_string(i % 88) +
                ".mixer.experts." + std::to_string(i) +
                R"(.down_proj.weight":{"dtype":"BF16","shape":[1,1],"data_offsets":[)" + begin +
                "," + end + "]}";
    }
    const TemporaryFolder folder;
    folder.write("model.safetensors",
                 safetensors_bytes(header + "}", std::string(2 * tensors, '0')));
    const std::clock_t start = std::clock();
    const TensorFiles files(folder.path());
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    CHECK(files.names().size() == tensors);
    MESSAGE("165,860 tensors in " << seconds << " s of CPU");
    // A loose limit: it takes 0.2 s, and ten times longer with sanitizers.
    CHECK(seconds < 5.0);
  }
}

}  // namespace tensor_files_test
