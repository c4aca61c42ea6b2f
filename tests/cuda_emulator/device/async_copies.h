#pragma once

#include <cstddef>
#include <vector>

namespace emulator {

/// The asynchronous copies (cp.async) of one thread. A copy is done as late as the machine may do
/// it: when the thread waits for its group. Until then the destination holds 0xff bytes, NaN in
/// every float type, so that who reads too early sees it; and the source is read late, so that who
/// overwrites it too early sees that.
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
