#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/io/file.h"

namespace hyb {

/// A range of bytes outside the pools: on disk, or in host memory. Only written bytes are read.
class Storage {
 public:
  virtual ~Storage() = default;
  /// Both throw Error(runtime) on failure.
  virtual void write(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void read(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
};

/// An unnamed file in a folder, private to this process and gone with it however it ends. Its
/// length is that of the bytes written.
class FileStorage final : public Storage {
 public:
  /// Throws Error(runtime) when no file can be created in the folder.
  explicit FileStorage(const std::filesystem::path& folder);

  void write(std::uint64_t offset, std::span<const std::byte> bytes) override;
  void read(std::uint64_t offset, std::span<std::byte> bytes) const override;

  std::uint64_t size() const;  ///< of the file, in bytes

 private:
  [[noreturn]] void fail(const char* what, int code) const;

  std::filesystem::path folder_;
  Descriptor descriptor_;
};

/// Host memory. Pages that were never written take no physical memory.
class MemoryStorage final : public Storage {
 public:
  /// Throws Error(memory) when the address range cannot be reserved.
  explicit MemoryStorage(std::size_t bytes);
  ~MemoryStorage() override;
  MemoryStorage(const MemoryStorage&) = delete;
  MemoryStorage& operator=(const MemoryStorage&) = delete;

  void write(std::uint64_t offset, std::span<const std::byte> bytes) override;
  void read(std::uint64_t offset, std::span<std::byte> bytes) const override;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Consecutive sectors.
struct Extent {
  std::uint32_t first, count;
};

inline constexpr std::size_t sector_bytes = 4096;

/// Allocates sectors of a storage, in as few extents as possible: as long as enough sectors are
/// free, an allocation succeeds, split if necessary. O(log n) per extent.
class Extents {
 public:
  explicit Extents(std::uint32_t sectors);

  /// Empty, with nothing taken, when fewer sectors are free.
  std::optional<std::vector<Extent>> take(std::uint32_t sectors);
  void give_back(std::span<const Extent> extents);

  std::uint32_t total() const { return total_; }
  std::uint32_t free() const { return free_; }

 private:
  void add(Extent extent);
  void remove(Extent extent);

  std::uint32_t total_, free_ = 0;
  std::map<std::uint32_t, std::uint32_t> by_place_;            // first -> count
  std::set<std::pair<std::uint32_t, std::uint32_t>> by_size_;  // (count, first)
};

}  // namespace hyb
