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
  std::uint32_t number = 0;  ///< tells sections of one kind apart
  std::uint64_t length = 0;  ///< bytes of the payload
};

/// Writes such a file: it appears with commit() or not at all. Failures are Error(runtime).
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

/// Reads such a file, which may be hostile: nothing that it says is believed before it was checked
/// against the size of the file. Every violation is Error(model) that begins with the path.
class SectionReader {
 public:
  /// Who needs the first sections only can do with a file that was cut, or added to, behind them.
  enum class Size : std::uint8_t { as_written, any };

  /// Checks the front: magic, version, checksum; as written also the size, and that it has room for
  /// the sections.
  SectionReader(const std::filesystem::path& path, const SectionFormat& format,
                Size size = Size::as_written);

  /// The next section, whether or not the one before was read. Nothing: that was the last one.
  std::optional<SectionHead> next();

  /// The payload of the section that next() named, checked; `into` has its length. Call it once.
  void read(std::span<std::byte> into);

  /// So many will next() still name.
  std::uint64_t sections_left() const { return sections_left_; }

  /// Ends with Error(model): a rule of the format above was broken.
  [[noreturn]] void fail(std::string_view what) const;

 private:
  File file_;
  std::uint64_t position_ = 0;  // of the next section's head
  std::uint64_t sections_left_ = 0;
  SectionHead head_;
  std::uint64_t payload_begin_ = 0, seed_ = 0, sum_ = 0;
};

}  // namespace hyb
