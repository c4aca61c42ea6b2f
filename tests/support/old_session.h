#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>

#include "core/io/file.h"
#include "core/io/section_file.h"

namespace hyb::testing {

/// Writes a file of sections as the older version has them: its front counts them.
class CountedSections {
 public:
  CountedSections(std::filesystem::path path, const SectionFormat& format)
      : path_(std::move(path)), format_(format), bytes_(40, '\0') {}

  void add(std::uint32_t kind, std::uint32_t number, std::span<const std::byte> payload) {
    std::string head(16, '\0');
    put(head, 0, std::uint64_t{payload.size()});
    put(head, 8, kind);
    put(head, 12, number);
    const std::uint64_t sum = checksum(payload, checksum(std::as_bytes(std::span(head))));
    head.resize(24);
    put(head, 16, sum);
    bytes_ += head;
    bytes_.append(reinterpret_cast<const char*>(payload.data()), payload.size());
    ++sections_;
  }

  void commit() {
    std::memcpy(bytes_.data(), format_.magic.data(), format_.magic.size());
    put(bytes_, 8, format_.older_version != 0 ? format_.older_version : format_.version);
    put(bytes_, 16, std::uint64_t{bytes_.size()});
    put(bytes_, 24, sections_);
    put(bytes_, 32, checksum(std::as_bytes(std::span(bytes_)).first(32)));
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes_;
  }

 private:
  template <typename Number>
  static void put(std::string& into, std::size_t at, Number number) {
    std::memcpy(into.data() + at, &number, sizeof(number));
  }

  std::filesystem::path path_;
  SectionFormat format_;
  std::string bytes_;
  std::uint64_t sections_ = 0;
};

}  // namespace hyb::testing
