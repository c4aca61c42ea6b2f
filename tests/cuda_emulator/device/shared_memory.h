#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace emulator {

/// The shared memory of one resident block: 0xff bytes (NaN) when a block starts. After
/// the dynamic part is a page that may not be touched; around every part is a pattern
/// that must stay as it is.
class SharedMemory {
 public:
  static constexpr std::size_t bytes_max = 227 << 10;
  static constexpr std::size_t room = 320 << 10;  ///< objects from the front, dynamic at the end

  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Resets it for a block with this much dynamic memory, and `limit` bytes with all objects.
  void prepare(std::size_t dynamic_bytes, std::size_t limit);

  std::byte* dynamic() const { return dynamic_; }
  std::size_t dynamic_bytes() const { return dynamic_bytes_; }

  /// The block's one object of this key: a type has one place, as a __shared__ variable in a
  /// function has. Null when there is no room within the limit.
  std::byte* object(const void* key, std::size_t bytes, std::size_t alignment);

  bool contains(const void* at, std::size_t bytes) const;
  /// Where this is in the room; a number beyond it when it is elsewhere.
  std::size_t offset_of(const void* at) const;

  /// What was written outside of the parts since prepare(), as text; empty when nothing was.
  std::string damage() const;

  /// Is it the page after the dynamic part, or the one before all?
  bool is_guard_page(const void* at) const;

 private:
  struct Object {
    const void* key;
    std::byte* begin;
    std::size_t bytes;
  };

  std::byte* begin_ = nullptr;  ///< mapped: guard page, objects, dynamic part, guard page
  std::byte* end_ = nullptr;
  std::byte* dynamic_ = nullptr;
  std::size_t dynamic_bytes_ = 0, objects_bytes_ = 0, limit_ = 0;
  std::byte* objects_end_ = nullptr;
  std::vector<Object> objects_;
};

/// The asynchronous copies (cp.async) of one thread. A copy is done as late as the machine may do
/// it: when the thread waits for its group. Until then the destination holds 0xff bytes, NaN in
/// every float type, so that a read that is too early shows; and the source is read late, so that
/// overwriting it too early shows.
class AsyncCopies {
 public:
  void clear();

  /// Copies source_bytes of `bytes` and fills the rest with zeros.
  void issue(void* to, const void* from, std::size_t bytes, std::size_t source_bytes);
  void commit() { ++groups_; }
  /// Does the copies of all groups but the `pending` last ones committed.
  void wait(std::size_t pending);

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes, source_bytes, group;
  };

  std::vector<Copy> copies_;
  std::size_t groups_ = 0;
};

}  // namespace emulator
