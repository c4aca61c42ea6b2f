#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/io/file.h"

namespace hyb {

/// A container of checked sections that grows at its end, all numbers little-endian:
///
///     magic 8 | version u32 | 0 u32 | 0 u64 | 0 u64 | checksum u64
///     per section: length u64 | kind u32 | number u32 | checksum u32 | checksum u32 | payload
///
/// The checksum of the front covers the bytes before it. The first one of a section is that of its
/// payload, seeded with the sum of its first 16 bytes; the second one is that of these. What a
/// writer that was killed did not finish is the end of the file and counts as not there.
///
/// Files of the older version, which are read only, have other numbers in place of the zeros, and
/// of a section one checksum u64 of payload and first 16 bytes.
struct SectionFormat {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t older_version = 0;              ///< is read too; 0: none
  std::uint64_t bytes_max = ~std::uint64_t{0};  ///< of a payload, but of an open section
};

struct SectionHead {
  std::uint32_t kind = 0;
  std::uint32_t number = 0;  ///< distinguishes sections of one kind
  std::uint64_t length = 0;  ///< bytes of the payload
};

/// Marks kinds whose payload may be overwritten: its checksum is 0 and kept elsewhere.
inline constexpr std::uint32_t open_section = 0x80000000;

/// Writes a whole file, which takes the place of another with commit() or not at all. Failures
/// are Error(runtime).
class SectionWriter {
 public:
  SectionWriter(const std::filesystem::path& path, const SectionFormat& format);

  void add(std::uint32_t kind, std::uint32_t number, std::span<const std::byte> payload);
  void commit() { file_.commit(); }

 private:
  AtomicFile file_;
};

/// Adds to such a file. Failures are Error(runtime) that begins with the path.
class SectionLog {
 public:
  /// Cuts off what lies after `end`, where the last whole section ends.
  SectionLog(std::filesystem::path path, std::uint64_t end);

  /// Returns where the payload begins in the file.
  std::uint64_t add(std::uint32_t kind, std::uint32_t number, std::span<const std::byte> payload);
  /// The payload of an open section.
  void overwrite(std::uint64_t begin, std::span<const std::byte> payload);
  void read(std::uint64_t begin, std::span<std::byte> into) const;
  /// After it, what was written outlives the machine, too.
  void sync();

  std::uint64_t size() const { return end_; }
  /// Returns the open file, wherever it was renamed to.
  int descriptor() const { return descriptor_.number(); }

 private:
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  [[noreturn]] void fail(const char* what, int code) const;

  std::filesystem::path path_;
  Descriptor descriptor_;
  std::uint64_t end_;
};

/// Reads such a file, which may be hostile: every length is checked against the size of the file
/// before it is used. Every violation is Error(model) that begins with the path.
class SectionReader {
 public:
  /// Checks the front: magic, version, checksum.
  SectionReader(const std::filesystem::path& path, const SectionFormat& format);

  /// The next section, whether or not the previous one was read; empty after the last one.
  std::optional<SectionHead> next();

  /// Reads and checks the payload of the section that next() returned; `into` has its length.
  void read(std::span<std::byte> into) const;

  std::string path() const { return file_.path().string(); }
  bool is_older() const { return is_older_; }
  /// Returns where the payload of the section that next() returned begins.
  std::uint64_t payload_begin() const { return payload_begin_; }
  std::uint64_t end() const { return position_; }
  /// Bytes from anywhere in the file, unchecked.
  void read_at(std::uint64_t begin, std::span<std::byte> into) const { file_.read(begin, into); }

  /// Throws Error(model): the file violates the format of its payloads.
  [[noreturn]] void fail(std::string_view what) const;

 private:
  File file_;
  bool is_older_ = false;
  std::uint64_t bytes_max_;
  std::uint64_t position_ = 0;  // of the next section's head
  SectionHead head_;
  std::uint64_t payload_begin_ = 0, seed_ = 0, sum_ = 0;
};

}  // namespace hyb
