#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "core/io/file.h"

namespace hyb {

/// A container of checked sections, all numbers little-endian:
///
///     magic 8 | version u32 | 0 u32 | bytes of the file u64 | sections u64 | checksum u64
///     per section: length u64 | kind u32 | number u32 | checksum u64 | payload
///
/// The checksum of the front covers the bytes before it; that of a section its payload, seeded with
/// the sum of the bytes before it.
struct SectionFormat {
  std::array<char, 8> magic;
  std::uint32_t version;
};

struct SectionHead {
  std::uint32_t kind = 0;
  std::uint32_t number = 0;  ///< distinguishes sections of one kind
  std::uint64_t length = 0;  ///< bytes of the payload
};

/// Writes such a file, which appears with commit() or not at all. Failures are Error(runtime).
class SectionWriter {
 public:
  SectionWriter(const std::filesystem::path& path, const SectionFormat& format);

  void add(std::uint32_t kind, std::uint32_t number, std::span<const std::byte> payload);
  void commit();

 private:
  AtomicFile file_;
  SectionFormat format_;
  std::uint64_t sections_ = 0;
};

/// Reads such a file, which may be hostile: every length is checked against the size of the file
/// before it is used. Every violation is Error(model) that begins with the path.
class SectionReader {
 public:
  /// `any` accepts a file that was truncated or extended after the sections that the caller reads.
  enum class Size : std::uint8_t { as_written, any };

  /// Checks the front: magic, version, checksum; with `as_written` also the file size, and that it
  /// has room for the sections.
  SectionReader(const std::filesystem::path& path, const SectionFormat& format,
                Size size = Size::as_written);

  /// The next section, whether or not the previous one was read; empty after the last one.
  std::optional<SectionHead> next();

  /// Reads and checks the payload of the section that next() returned; `into` has its length. Call
  /// it once.
  void read(std::span<std::byte> into);

  /// Sections that next() has not returned yet.
  std::uint64_t sections_left() const { return sections_left_; }

  /// Throws Error(model): the file violates the format of its payloads.
  [[noreturn]] void fail(std::string_view what) const;

 private:
  File file_;
  std::uint64_t position_ = 0;  // of the next section's head
  std::uint64_t sections_left_ = 0;
  SectionHead head_;
  std::uint64_t payload_begin_ = 0, seed_ = 0, sum_ = 0;
};

}  // namespace hyb
