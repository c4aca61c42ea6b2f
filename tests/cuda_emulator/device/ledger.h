#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace emulator {

/// What memory is asked for: by cudaMalloc, for physical handles, for graphs; and the host's
/// pinned.
enum class Holder : std::uint8_t { allocation, handle, graph, pinned };

/// Who holds how many bytes of the card, and which requests for more it refuses. Calls come from
/// one host thread at a time.
class Ledger {
 public:
  /// False, and nothing is counted: refused.
  bool take(Holder holder, std::size_t bytes);
  void give_back(Holder holder, std::size_t bytes);

  std::size_t bytes(Holder holder) const { return bytes_[static_cast<std::size_t>(holder)]; }
  /// Of all but pinned memory, which is the host's.
  std::size_t device_bytes() const;
  std::size_t free_bytes() const;

  /// Requests so far, refused ones too.
  std::int64_t requests() const { return requests_; }
  /// Refuses the n-th request from now on, the first being 1, and the `count` - 1 after it; 0:
  /// none.
  void refuse(std::int64_t n, std::int64_t count = 1);

  std::size_t bytes_max = std::size_t{1} << 30;  ///< of the card

 private:
  std::array<std::size_t, 4> bytes_{};
  std::int64_t requests_ = 0;
  std::int64_t refuse_first_ = 0, refuse_end_ = 0;
};

Ledger& ledger();

}  // namespace emulator
