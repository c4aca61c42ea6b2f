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

/// A range of bytes outside the pools: a disk, or memory of the host. What was never written is
/// never read.
class Storage {
 public:
  virtual ~Storage() = default;
  /// Both throw Error(runtime) when it can't be done.
  virtual void write(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void read(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
};

/// A file without a name in a folder, readable by nobody else: it is gone with the process, however
/// that ends. It is as long as what was written.
class FileStorage final : public Storage {
 public:
  /// Throws Error(runtime) when the folder has no room for a file.
  explicit FileStorage(const std::filesystem::path& folder);

  void write(std::uint64_t offset, std::span<const std::byte> bytes) override;
  void read(std::uint64_t offset, std::span<std::byte> bytes) const override;

  std::uint64_t size() const;  ///< of the file, in bytes

 private:
  [[noreturn]] void fail(const char* doing, int code) const;

  std::filesystem::path folder_;
  Descriptor descriptor_;
};

/// Memory of the host. Pages of it that were never written take none.
class MemoryStorage final : public Storage {
 public:
  /// Throws Error(memory) when there are not so many addresses.
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

/// Which sectors of a storage are free. What is asked for is given in as few pieces as there are:
/// whatever is free can be had, in pieces if need be. O(log n) per piece.
class Extents {
 public:
  explicit Extents(std::uint32_t sectors);

  /// Empty, and nothing taken: there are not so many.
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
