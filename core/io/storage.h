#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
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
  virtual void read(std::uint64_t offset, std::span<std::byte> bytes) = 0;
};

/// An unnamed file in a folder, private to this process and gone with it however it ends. Its
/// length is that of the bytes written.
class FileStorage final : public Storage {
 public:
  /// Throws Error(runtime) when no file can be created in the folder.
  explicit FileStorage(const std::filesystem::path& folder);

  void write(std::uint64_t offset, std::span<const std::byte> bytes) override;
  void read(std::uint64_t offset, std::span<std::byte> bytes) override;

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
  void read(std::uint64_t offset, std::span<std::byte> bytes) override;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A file with host memory in front of it, by pieces: those used last are in memory, and a piece
/// that was written goes to the file when others need its place.
class LayeredStorage final : public Storage {
 public:
  static constexpr std::size_t piece_bytes = std::size_t{256} << 10;

  /// At least one piece of memory. Throws as the two storages do.
  LayeredStorage(std::size_t memory_bytes, const std::filesystem::path& folder);

  void write(std::uint64_t offset, std::span<const std::byte> bytes) override;
  void read(std::uint64_t offset, std::span<std::byte> bytes) override;

  std::uint64_t file_size() const { return file_.size(); }

 private:
  struct Held {
    std::uint64_t piece, place;  ///< place: in memory, in bytes
    bool is_changed;             ///< the file has other bytes, or none
  };

  Held& hold(std::uint64_t piece, bool is_replaced);
  void evict();

  MemoryStorage memory_;
  FileStorage file_;
  std::vector<std::uint64_t> free_places_;
  std::list<Held> held_;  ///< the one used last comes first
  std::unordered_map<std::uint64_t, std::list<Held>::iterator> by_piece_;
  std::vector<bool> is_in_file_;  ///< by piece
  std::vector<std::byte> moved_;  ///< a piece between memory and file
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
