#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "core/io/descriptor.h"

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

}  // namespace hyb
