#include "core/io/section_file.h"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/file.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace section_file_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

constexpr SectionFormat format{
    .magic = {'T', 'E', 'S', 'T', 'F', 'I', 'L', 'E'}, .version = 4, .older_version = 3};

struct Section {
  std::uint32_t kind, number;
  std::string payload;
  bool operator==(const Section&) const = default;
};

const std::vector<Section> sample = {
    {1, 0, "first"}, {2, 0, ""}, {2, 1, std::string(5000, 'x')}, {0x7FFFFFFF, 7, "last"}};

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

  TEST_CASE("a flipped bit is refused, or the last section is not there; a cut leaves the others") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "f";
    const std::vector<Section> sections = {{1, 0, "first"}, {2, 0, ""}, {3, 1, "third section"}};
    write(path, sections);
    const std::string good = bytes_of(path);
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
      folder.write("bad", bad);
      std::vector<Section> left;
      const bool is_refused = !model_error([&] { left = read(folder.path() / "bad"); }).empty();
      CHECK((is_refused ||
             (left.size() == 2 && std::equal(left.begin(), left.end(), sections.begin()))));
    }
    for (std::size_t size = 40; size < good.size(); ++size) {
      folder.write("bad", good.substr(0, size));
      const std::vector<Section> left = read(folder.path() / "bad");
      CHECK(left.size() == (size < 69 ? 0 : size < 93 ? 1 : 2));
      CHECK(std::equal(left.begin(), left.end(), sections.begin()));
    }
  }

  TEST_CASE("random damage never gives other sections") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "f";
    write(path, sample);
    const std::string good = bytes_of(path);
    std::mt19937 random(1);
    for (int i = 0; i < 500; ++i) {
      std::string bad = good;
      for (std::uint32_t n = random() % 8 + 1; n > 0; --n) {
        bad[random() % std::min<std::size_t>(bad.size(), 200)] = static_cast<char>(random());
      }
      folder.write("bad", bad);
      std::vector<Section> left;
      if (!model_error([&] { left = read(folder.path() / "bad"); }).empty()) continue;
      CHECK((left.size() <= sample.size() && std::equal(left.begin(), left.end(), sample.begin())));
    }
  }

  TEST_CASE("the error names the reason: kind, version, damage") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "f";
    write(path, sample);
    const auto reading = [&](const SectionFormat& other) {
      return model_error([&] { SectionReader reader(path, other); });
    };
    CHECK(contains(reading({.magic = {'O', 'T', 'H', 'E', 'R'}, .version = 4}),
                   "not a file of this kind"));
    CHECK(contains(reading({.magic = format.magic, .version = 5}),
                   "has format version 4, this hyb reads 5"));
    std::string bad = bytes_of(path);
    bad[48] = '\x7f';  // the kind of the first section
    folder.write("bad", bad);
    CHECK(contains(model_error([&] { read(folder.path() / "bad"); }), "head at byte 40 is wrong"));
  }

  TEST_CASE("a section above the limit is refused before it is read, an open one is not") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "f";
    SectionFormat limited = format;
    limited.bytes_max = 5000;
    write(path, {{1 | open_section, 0, std::string(5001, 'x')}, {2, 0, std::string(5000, 'x')}});
    SectionReader good(path, limited);
    CHECK(good.next()->length == 5001);
    CHECK(good.next()->length == 5000);
    CHECK(!good.next());
    write(path, {{2, 0, std::string(5001, 'x')}});
    SectionReader bad(path, limited);
    CHECK(contains(model_error([&] { bad.next(); }), "larger than it may be"));
  }

  TEST_CASE("a file that grows: added sections are read, open ones may be overwritten") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "f";
    SectionWriter begun(path, format);
    const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
    begun.add(1, 0, bytes("first"));
    begun.commit();
    SectionLog log(path, std::filesystem::file_size(path));
    const std::uint64_t begin = log.add(2 | open_section, 0, bytes("place"));
    log.add(3, 7, bytes("last"));
    log.overwrite(begin, bytes("PLACE"));
    log.sync();
    CHECK(read(path) ==
          std::vector<Section>{{1, 0, "first"}, {2 | open_section, 0, "PLACE"}, {3, 7, "last"}});
    const std::string good = bytes_of(path);
    std::ofstream(path, std::ios::app) << "what was torn";
    CHECK(read(path).size() == 3);
    SectionLog again(path, good.size());
    CHECK(bytes_of(path) == good);
    CHECK(contains(error_text([&] { SectionLog none(folder.path() / "none", 40); }), "none: "));
  }
}

}  // namespace section_file_test
