#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/io/storage.h"

namespace hyb::testing {

/// What a ShimStorage does and has seen. Outlives it.
struct ShimDisk {
  std::int64_t fails_at = -1;    ///< this call and all later ones fail; -1: none
  std::int64_t damages_at = -1;  ///< the reading of this number has one wrong bit; -1: none
  std::int64_t calls = 0, readings = 0;
  std::uint64_t size = 0;  ///< one past the last byte that was ever written
};

/// A disk in memory that fails on command.
class ShimStorage final : public Storage {
 public:
  explicit ShimStorage(ShimDisk& disk) : disk_(&disk) {}

  void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    call();
    const std::uint64_t end = offset + bytes.size();
    disk_->size = std::max(disk_->size, end);
    if (end > bytes_.size()) bytes_.resize(static_cast<std::size_t>(end));
    std::copy(bytes.begin(), bytes.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  void read(std::uint64_t offset, std::span<std::byte> bytes) override {
    call();
    if (offset + bytes.size() > bytes_.size())
      throw Error(ErrorKind::runtime, "shim: past the end");
    const auto from = bytes_.begin() + static_cast<std::ptrdiff_t>(offset);
    std::copy_n(from, bytes.size(), bytes.begin());
    if (disk_->readings++ == disk_->damages_at) bytes.front() ^= std::byte{4};
  }

 private:
  void call() const {
    const std::int64_t number = disk_->calls++;
    if (disk_->fails_at >= 0 && number >= disk_->fails_at) {
      throw Error(ErrorKind::runtime, "shim: the disk fails, as planned");
    }
  }

  ShimDisk* disk_;
  std::vector<std::byte> bytes_;
};

}  // namespace hyb::testing
