#include "app/inspect/content_check.h"

#include <doctest/doctest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "models/families.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/gguf_bytes.h"

namespace content_check_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

/// One tensor's numbers as bytes, checked as a tensor that the plan needs, or does not.
ContentCheck check_of(const std::string& name, const std::string& dtype, const std::string& bytes,
                      std::size_t size, TensorVerdict verdict = TensorVerdict::right) {
  const TemporaryFolder folder;
  const std::string header = "{\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":[)" +
                             std::to_string(bytes.size() / size) + R"(],"data_offsets":[0,)" +
                             std::to_string(bytes.size()) + "]}}";
  folder.write("model.safetensors", safetensors_bytes(header, bytes));
  TensorFiles files(folder.path());
  TensorCheck tensors;
  tensors.rows.push_back(
      {.name = name, .dtype = dtype, .shape = {}, .verdict = verdict, .note = {}});
  ContentCheck check;
  check_weight_values(tensors, files, check, [](std::uint64_t) {});
  CHECK(check.bytes == bytes.size());
  return check;
}

template <typename Bits>
std::string raw(const std::vector<Bits>& values) {
  std::string bytes(values.size() * sizeof(Bits), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string only_defect(const ContentCheck& check) {
  CHECK(check.notes.empty());
  return check.defects.size() == 1 ? check.defects[0].name + " " + check.defects[0].text : "";
}

using U16 = std::uint16_t;
using U32 = std::uint32_t;

const std::filesystem::path demo =
    std::filesystem::path(HYB_TESTS_DIR).parent_path() / "models/demo";

/// The demo's texts, some of which a test replaces.
struct Texts {
  TemporaryFolder folder;

  Texts() {
    for (const char* name :
         {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
      folder.write(name, read_whole_file(demo / name, 16U << 20));
    }
  }

  ContentCheck check() const {
    const ModelSource source = ModelSource::find(folder.path().string(), {});
    ContentCheck check;
    check_tokenizer(source, models::plan_of(source.config(), false), check);
    return check;
  }
};

}  // namespace

TEST_SUITE("app/inspect/weight_values") {
  TEST_CASE("scales and minima of blocks are numbers") {
    // Q4_1, Q4_K and IQ2_XXS, whose blocks are not read: types, bytes and elements.
    const auto checked = [](std::uint32_t type, std::uint64_t elements, const std::string& blocks) {
      const TemporaryFolder folder;
      GgufBytes file;
      file.begin(1, 0).tensor("a.weight", {elements}, type, 0).pad().raw(blocks);
      TensorFiles files = TensorFiles::of_gguf(GgufFiles(folder.write("x.gguf", file.bytes())));
      TensorCheck tensors;
      tensors.rows.push_back({.name = "a.weight",
                              .dtype = "",
                              .shape = {},
                              .verdict = TensorVerdict::right,
                              .note = {}});
      ContentCheck check;
      check_weight_values(tensors, files, check, [](std::uint64_t) {});
      return check;
    };
    const auto block = [](U16 scale, U16 min, std::size_t size) {
      std::string bytes = raw<U16>({scale, min});
      return bytes + std::string(size - bytes.size(), '\x21');
    };
    constexpr std::uint32_t q4_1 = 3, q4_k = 12, iq2_xxs = 16;
    const std::string good = block(0x3C00, 0x3C00, 20);
    const ContentCheck right = checked(q4_1, 64, good + good);
    CHECK(right.defects.empty());
    CHECK(right.tensors == 1);
    CHECK(right.bytes == 40);
    CHECK(only_defect(checked(q4_1, 64, good + block(0x7C01, 0, 20))) == "a.weight has NaN");
    CHECK(only_defect(checked(q4_1, 64, good + block(0, 0xFC00, 20))) ==
          "a.weight has an infinity");
    CHECK(only_defect(checked(q4_k, 256, block(0, 0x7E00, 144))) == "a.weight has NaN");
    CHECK(checked(q4_k, 256, block(0, 0x3C00, 144)).defects.empty());
    CHECK(checked(iq2_xxs, 256, block(0x7C01, 0, 66)).tensors == 0);
    // After the first 8 MiB, which are no whole number of blocks.
    std::string many;
    while (many.size() <= std::size_t{8} << 20) many += good;
    many += block(0x7C00, 0, 20);
    CHECK(only_defect(checked(q4_1, many.size() / 20 * 32, many)) == "a.weight has an infinity");
  }

  TEST_CASE("NaN and infinities are found in every type, also after millions of numbers") {
    CHECK(only_defect(check_of("a", "BF16", raw<U16>({0x3F80, 0xFFC0, 0}), 2)) == "a has NaN");
    CHECK(only_defect(check_of("a", "BF16", raw<U16>({0x3F80, 0xFF80}), 2)) == "a has an infinity");
    CHECK(only_defect(check_of("a", "F16", raw<U16>({0x3C00, 0x7C01}), 2)) == "a has NaN");
    CHECK(only_defect(check_of("a", "F16", raw<U16>({0x7C00}), 2)) == "a has an infinity");
    CHECK(only_defect(check_of("a", "F32", raw<U32>({1, 0x7F800001}), 4)) == "a has NaN");
    CHECK(only_defect(check_of("a", "F32", raw<U32>({1, 0x7F800000}), 4)) == "a has an infinity");
    CHECK(only_defect(check_of("a", "F8_E4M3", "\x01\xFF", 1)) == "a has NaN");
    CHECK(only_defect(check_of("a", "F8_E5M2", "\x7C", 1)) == "a has an infinity");
    std::vector<U16> many((9U << 20) / 2, 0x3F80);
    many.back() = 0x7FC0;
    CHECK(only_defect(check_of("a", "BF16", raw(many), 2)) == "a has NaN");
  }

  TEST_CASE("the largest finite numbers are none") {
    for (const ContentCheck& check :
         {check_of("a", "BF16", raw<U16>({0x7F7F, 0xFF7F}), 2),
          check_of("a", "F16", raw<U16>({0xFBFF}), 2), check_of("a", "F8_E4M3", "\x7E\xFE", 1),
          check_of("a", "F32", raw<U32>({0x80000000, 1}), 4), check_of("a", "U8", "", 1)}) {
      CHECK(check.defects.empty());
      CHECK(check.notes.empty());
    }
  }

  TEST_CASE("scales are above 0; zeros alone are a note; what is not needed has notes only") {
    for (const U32 value : {U32{0}, U32{0xBF800000}, U32{0x80000000}}) {
      CHECK(only_defect(check_of("a.weight_scale_inv", "F32", raw<U32>({0x3F800000, value}), 4)) ==
            "a.weight_scale_inv has a scale that is not above 0");
    }
    CHECK(check_of("a.weight_scale", "F32", raw<U32>({0x3F800000}), 4).defects.empty());
    const ContentCheck zeros = check_of("a", "BF16", raw<U16>({0, 0x8000}), 2);
    CHECK(zeros.defects.empty());
    REQUIRE(zeros.notes.size() == 1);
    CHECK(zeros.notes[0].text == "is all zeros");
    const ContentCheck unused = check_of("a", "BF16", raw<U16>({0x7FC0}), 2, TensorVerdict::unused);
    CHECK(unused.defects.empty());
    CHECK(unused.notes.size() == 1);
  }

  TEST_CASE("notes of a kind are one line, defects one each") {
    const ContentCheck check = {.defects = {{"a", "has NaN"}, {"b", "has NaN"}},
                                .notes = {{"c", "is all zeros"}, {"d", "is all zeros"}},
                                .tensors = 1,
                                .bytes = 2048};
    const std::string text = content_text(check);
    CHECK(contains(text, "checked 1 tensor, 2.0 KiB in"));
    CHECK(contains(text, "2 defects, 2 notes\n"));
    CHECK(contains(text, "  defect: b: has NaN\n"));
    CHECK(contains(text, "  note: c and 1 more: is all zeros\n"));
  }
}

TEST_SUITE("app/inspect/tokenizer_check") {
  TEST_CASE("the demo's tokenizer has no defects") {
    const ContentCheck check = Texts().check();
    CAPTURE(content_text(check));
    CHECK(check.defects.empty());
  }

  TEST_CASE("tokens beyond the embedding, named ones that are missing, damaged files") {
    const auto text_of = [](const Texts& texts) { return content_text(texts.check()); };
    Texts texts;
    Json config = parse_json(read_whole_file(demo / "config.json", 1 << 20), "c");
    const std::int64_t rows = config["vocab_size"];
    config["vocab_size"] = rows - 100;
    texts.folder.write("config.json", to_text(config));
    CHECK(contains(text_of(texts), "note: tokenizer.json: has ids up to"));
    config["vocab_size"] = rows + 100;
    texts.folder.write("config.json", to_text(config));
    CHECK(contains(text_of(texts), "note: tokenizer.json: has ids up to"));
    texts.folder.write("tokenizer_config.json", R"({"eos_token":{"content":"<|nothing|>"}})");
    CHECK(contains(text_of(texts),
                   "defect: tokenizer_config.json: eos_token \"<|nothing|>\" is not in the vocab"));
    texts.folder.write("tokenizer.json", "{");
    CHECK(contains(text_of(texts), "defect: tokenizer.json: "));
    std::filesystem::remove(texts.folder.path() / "tokenizer.json");
    CHECK(contains(text_of(texts), "note: tokenizer.json: is not there"));
  }

  TEST_CASE("a text that is another one after every round is a defect") {
    Texts texts;
    Json tokenizer = parse_json(read_whole_file(demo / "tokenizer.json", 16U << 20), "t");
    tokenizer["normalizer"] = {{"type", "Prepend"}, {"prepend", "x"}};
    texts.folder.write("tokenizer.json", to_text(tokenizer));
    CHECK(contains(content_text(texts.check()), "comes back changed, each time to another text"));
    tokenizer["normalizer"] = {{"type", "Lowercase"}};
    texts.folder.write("tokenizer.json", to_text(tokenizer));
    const ContentCheck lower = texts.check();
    CHECK(lower.defects.empty());
    CHECK(contains(content_text(lower), "comes back changed: it is normalised"));
  }
}

}  // namespace content_check_test
