#include "core/io/storage.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>
#include <system_error>

#include "core/base/error.h"

namespace hyb {
namespace {

/// Where the file system has no unnamed files, creates a named one and unlinks it at once.
Descriptor open_unnamed(const std::filesystem::path& folder) {
  Descriptor unnamed(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (unnamed.is_open() || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
    return unnamed;
  }
  std::string name = (folder / "hyb-tier-XXXXXX").string();
  Descriptor named(::mkostemp(name.data(), O_CLOEXEC));
  if (named.is_open()) ::unlink(name.c_str());
  return named;
}

}  // namespace

FileStorage::FileStorage(const std::filesystem::path& folder)
    : folder_(folder), descriptor_(open_unnamed(folder)) {
  if (!descriptor_.is_open()) fail("no file can be created in it", errno);
}

void FileStorage::fail(const char* what, int code) const {
  throw Error(ErrorKind::runtime,
              folder_.string() + ": " + what + ": " + std::generic_category().message(code));
}

void FileStorage::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  const int code = write_at(descriptor_.number(), offset, bytes);
  if (code != 0) fail("can't be written", code);
}

void FileStorage::read(std::uint64_t offset, std::span<std::byte> bytes) {
  const ReadResult read = read_at(descriptor_.number(), offset, bytes);
  if (read.code != 0) fail("can't be read", read.code);
  if (read.bytes < bytes.size()) fail("can't be read", EIO);
}

std::uint64_t FileStorage::size() const {
  struct stat status {};
  if (::fstat(descriptor_.number(), &status) != 0) fail("can't be examined", errno);
  return static_cast<std::uint64_t>(status.st_size);
}

MemoryStorage::MemoryStorage(std::size_t bytes) : size_(bytes) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    throw Error(ErrorKind::memory, "host tier: " + std::to_string(bytes) +
                                       " bytes of address space can't be reserved");
  }
  data_ = static_cast<std::byte*>(data);
}

MemoryStorage::~MemoryStorage() { ::munmap(data_, size_); }

void MemoryStorage::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  require(offset <= size_ && bytes.size() <= size_ - offset,
          "memory storage: range inside its size");
  std::memcpy(data_ + offset, bytes.data(), bytes.size());
}

void MemoryStorage::read(std::uint64_t offset, std::span<std::byte> bytes) {
  require(offset <= size_ && bytes.size() <= size_ - offset,
          "memory storage: range inside its size");
  std::memcpy(bytes.data(), data_ + offset, bytes.size());
}

LayeredStorage::LayeredStorage(std::size_t memory_bytes, const std::filesystem::path& folder)
    : memory_(std::max(memory_bytes, piece_bytes)), file_(folder), moved_(piece_bytes) {
  for (std::size_t place = std::max(memory_bytes, piece_bytes) / piece_bytes; place > 0; --place) {
    free_places_.push_back((place - 1) * piece_bytes);
  }
}

/// The piece that was used longest ago leaves memory.
void LayeredStorage::evict() {
  const Held last = held_.back();
  if (last.is_changed) {
    memory_.read(last.place, moved_);
    file_.write(last.piece * piece_bytes, moved_);
    if (is_in_file_.size() <= last.piece) is_in_file_.resize(last.piece + 1);
    is_in_file_[last.piece] = true;
  }
  by_piece_.erase(last.piece);
  held_.pop_back();
  free_places_.push_back(last.place);
}

/// The piece in memory, as the one used last; with is_replaced its bytes do not matter.
LayeredStorage::Held& LayeredStorage::hold(std::uint64_t piece, bool is_replaced) {
  if (const auto found = by_piece_.find(piece); found != by_piece_.end()) {
    held_.splice(held_.begin(), held_, found->second);
    return held_.front();
  }
  if (free_places_.empty()) evict();
  const std::uint64_t place = free_places_.back();
  const bool is_in_file = piece < is_in_file_.size() && is_in_file_[piece];
  if (is_in_file && !is_replaced) {
    file_.read(piece * piece_bytes, moved_);
    memory_.write(place, moved_);
  }
  free_places_.pop_back();
  held_.push_front({.piece = piece, .place = place, .is_changed = false});
  by_piece_[piece] = held_.begin();
  return held_.front();
}

void LayeredStorage::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t at = offset % piece_bytes;
    const std::size_t count = std::min<std::size_t>(bytes.size(), piece_bytes - at);
    Held& held = hold(offset / piece_bytes, count == piece_bytes);
    memory_.write(held.place + at, bytes.first(count));
    held.is_changed = true;
    offset += count;
    bytes = bytes.subspan(count);
  }
}

void LayeredStorage::read(std::uint64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t at = offset % piece_bytes;
    const std::size_t count = std::min<std::size_t>(bytes.size(), piece_bytes - at);
    memory_.read(hold(offset / piece_bytes, false).place + at, bytes.first(count));
    offset += count;
    bytes = bytes.subspan(count);
  }
}

Extents::Extents(std::uint32_t sectors) : total_(sectors) {
  if (sectors > 0) add({.first = 0, .count = sectors});
}

void Extents::add(Extent extent) {
  by_place_.emplace(extent.first, extent.count);
  by_size_.emplace(extent.count, extent.first);
  free_ += extent.count;
}

void Extents::remove(Extent extent) {
  by_place_.erase(extent.first);
  by_size_.erase({extent.count, extent.first});
  free_ -= extent.count;
}

std::optional<std::vector<Extent>> Extents::take(std::uint32_t sectors) {
  if (sectors > free_) return std::nullopt;
  std::vector<Extent> taken;
  while (sectors > 0) {
    // Best fit, else the largest: as few extents as possible.
    auto found = by_size_.lower_bound({sectors, 0});
    if (found == by_size_.end()) found = std::prev(found);
    const Extent whole{.first = found->second, .count = found->first};
    const Extent part{.first = whole.first, .count = std::min(whole.count, sectors)};
    remove(whole);
    if (part.count < whole.count) {
      add({.first = whole.first + part.count, .count = whole.count - part.count});
    }
    taken.push_back(part);
    sectors -= part.count;
  }
  return taken;
}

void Extents::give_back(std::span<const Extent> extents) {
  for (Extent extent : extents) {
    const auto after = by_place_.lower_bound(extent.first);
    require(after == by_place_.end() || after->first >= extent.first + extent.count,
            "extents: no sector is given back twice");
    if (after != by_place_.begin()) {
      const Extent before{.first = std::prev(after)->first, .count = std::prev(after)->second};
      require(before.first + before.count <= extent.first,
              "extents: no sector is given back twice");
      if (before.first + before.count == extent.first) {
        remove(before);
        extent = {.first = before.first, .count = before.count + extent.count};
      }
    }
    const auto next = by_place_.find(extent.first + extent.count);
    if (next != by_place_.end()) {
      const Extent following{.first = next->first, .count = next->second};
      remove(following);
      extent.count += following.count;
    }
    add(extent);
  }
}

}  // namespace hyb
