#include "core/io/section_file.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace section_file_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

constexpr SectionFormat format{.magic = {'T', 'E', 'S', 'T', 'F', 'I', 'L', 'E'}, .version = 3};

struct Section {
  std::uint32_t kind, number;
  std::string payload;
  bool operator==(const Section&) const = default;
};

const std::vector<Section> sample = {
    {1, 0, "first"}, {2, 0, ""}, {2, 1, std::string(5000, 'x')}, {0xFFFFFFFF, 7, "last"}};

void write(const std::filesystem::path& path, const std::vector<Section>& sections) {
  SectionWriter writer(path, format);
  for (const Section& section : sections) {
    writer.add(section.kind, section.number, std::as_bytes(std::span(section.payload)));
  }
  writer.commit();
}

std::vector<Section> read(const std::filesystem::path& path) {
  std::vector<Section> sections;
  SectionReader reader(path, format);
  while (const auto head = reader.next()) {
    Section section{head->kind, head->number, std::string(head->length, '\0')};
    reader.read(std::as_writable_bytes(std::span(section.payload)));
    sections.push_back(std::move(section));
  }
  return sections;
}

std::string bytes_of(const std::filesystem::path& path) {
  return read_whole_file(path, std::size_t{1} << 30);
}

}  // namespace

TEST_SUITE("core/io/section_file") {
  TEST_CASE("written sections are read back, and may be skipped") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "f";
    for (const auto& sections : {sample, std::vector<Section>{}}) {
      write(path, sections);
      CHECK(read(path) == sections);
      SectionReader reader(path, format);
      for (const Section& section : sections) CHECK(reader.next()->number == section.number);
      CHECK(!reader.next());
      CHECK(!reader.next());
    }
  }

  TEST_CASE("every flipped bit and every length but the right one is refused") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "f";
    write(path, {{1, 0, "first"}, {2, 0, ""}, {3, 1, "third section"}});
    const std::string good = bytes_of(path);
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
      folder.write("bad", bad);
      CHECK(!model_error([&] { read(folder.path() / "bad"); }).empty());
    }
    for (std::size_t size = 0; size < good.size(); ++size) {
      folder.write("bad", good.substr(0, size));
      CHECK(!model_error([&] { read(folder.path() / "bad"); }).empty());
    }
    folder.write("bad", good + "x");
    CHECK(!model_error([&] { read(folder.path() / "bad"); }).empty());
  }

  TEST_CASE("random damage is at most an error") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "f";
    write(path, sample);
    const std::string good = bytes_of(path);
    std::mt19937 random(1);
    for (int i = 0; i < 2000; ++i) {
      std::string bad = good;
      for (std::uint32_t n = random() % 8 + 1; n > 0; --n) {
        bad[random() % std::min<std::size_t>(bad.size(), 200)] = static_cast<char>(random());
      }
      if (bad == good) continue;
      folder.write("bad", bad);
      CHECK(!model_error([&] { read(folder.path() / "bad"); }).empty());
    }
  }

  TEST_CASE("a claim of more bytes than there are is refused before anything is allocated") {
    const TemporaryFolder folder;
    write(folder.path() / "f", {{1, 0, "first"}});
    std::string bad = bytes_of(folder.path() / "f");
    for (std::size_t i = 0; i < 8; ++i) bad[40 + i] = '\xFF';
    folder.write("bad", bad);
    const std::string error = model_error([&] { read(folder.path() / "bad"); });
    CHECK(contains(error, "section at byte 40 claims 18446744073709551615 bytes"));
  }

  TEST_CASE(
      "a claim of more sections than the file has room for is refused, whatever its checksum") {
    const TemporaryFolder folder;
    write(folder.path() / "f", {{1, 0, "first"}});
    std::string bad = bytes_of(folder.path() / "f");
    bad[28] = '\x01';  // of the number of sections: 2^32 more
    const std::uint64_t sum = checksum(std::as_bytes(std::span(bad).first(32)));
    std::memcpy(&bad[32], &sum, sizeof(sum));
    folder.write("bad", bad);
    const std::string error =
        model_error([&] { SectionReader reader(folder.path() / "bad", format); });
    CHECK(contains(error, "claims 4294967297 sections"));
  }

  TEST_CASE("the error names the reason: kind, version, truncation") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "f";
    write(path, sample);
    const auto reading = [&](const SectionFormat& other) {
      return model_error([&] { SectionReader reader(path, other); });
    };
    CHECK(contains(reading({.magic = {'O', 'T', 'H', 'E', 'R'}, .version = 3}),
                   "not a file of this kind"));
    CHECK(contains(reading({.magic = format.magic, .version = 4}),
                   "has format version 3, this hyb reads 4"));
    folder.write("cut", bytes_of(path).substr(0, 100));
    CHECK(contains(model_error([&] { read(folder.path() / "cut"); }), "has 100 bytes"));
  }
}

}  // namespace section_file_test
