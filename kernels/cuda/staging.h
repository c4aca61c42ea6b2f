#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/cuda/stream.h"

namespace hyb::kernels::cuda {

struct FreePinned {
  void operator()(std::byte* bytes) const;
};
struct FreeDevice {
  void operator()(std::byte* bytes) const;
};
/// Host bytes that the device copies from and to without the host's help.
using PinnedBytes = std::unique_ptr<std::byte, FreePinned>;
using DeviceBytes = std::unique_ptr<std::byte, FreeDevice>;
/// Throw Error(memory) where there is not enough.
PinnedBytes make_pinned(std::size_t bytes);
DeviceBytes make_device(std::size_t bytes);

/// Room for values on the host, and their address on the device.
template <typename T>
struct Staged {
  std::span<T> host;
  T* device;
};

/// Small tables on their way to the device, round after round: clear, take and fill, upload, then
/// the kernels that read them. The host side is double-buffered, so that a round may be filled
/// while the device still works on the one before; the device side is not: uploads are in stream
/// order.
class Staging {
 public:
  explicit Staging(Stream& stream) : stream_(stream) {}

  /// Afterwards takes that need no more than `bytes` in all allocate nothing, and the same takes
  /// get the same device addresses in every round, as graphs require. One take needs its bytes,
  /// rounded up to 64. What was taken before is gone.
  void reserve(std::size_t bytes);

  /// Returns what reserve(bytes) takes of the card, and twice of pinned memory; a Readback's takes
  /// it once.
  static std::size_t reserved_bytes(std::size_t bytes);

  /// Starts a round: all room is free again. Waits for the upload of the round before the last.
  void clear();

  /// Room for `count` values, aligned to 64 bytes, of any contents. Allocates where the room is
  /// used up (never while a graph is captured); what was taken before stays where it is.
  template <typename T>
  Staged<T> take(std::int64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const Place place = take_bytes(static_cast<std::size_t>(count) * sizeof(T));
    return {.host = {reinterpret_cast<T*>(place.host), static_cast<std::size_t>(count)},
            .device = reinterpret_cast<T*>(place.device)};
  }

  /// Enqueues the copy of all that was taken in this round; once a round, and not inside of a
  /// graph. The first `kept` bytes, whole takes, are not copied: there the device has written.
  void upload(std::size_t kept = 0);

 private:
  struct Chunk {
    std::array<PinnedBytes, 2> host;
    DeviceBytes device;
    std::size_t bytes = 0, used = 0;
  };
  struct Place {
    std::byte *host, *device;
  };
  Place take_bytes(std::size_t bytes);
  void add_chunk(std::size_t bytes);

  Stream& stream_;
  std::vector<Chunk> chunks_;
  std::array<Event, 2> uploaded_;
  std::size_t side_ = 0;
};

/// Copies from the device: clear, enqueue copies, wait once, read.
class Readback {
 public:
  explicit Readback(Stream& stream) : stream_(stream) {}

  /// Works as Staging's reserve().
  void reserve(std::size_t bytes);

  /// All room is free again; the last round's copies were waited for.
  void clear();

  /// Enqueues a copy of `count` values from the device. They may be read after wait() and before
  /// clear().
  template <typename T>
  std::span<const T> copy(const T* device, std::int64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    return {reinterpret_cast<const T*>(copy_bytes(device, bytes)), static_cast<std::size_t>(count)};
  }

  /// wait() will wait for the work enqueued until now; more may follow.
  void mark();

  /// Returns when the copies are done, and all work enqueued before the mark; before now where
  /// there is no mark.
  void wait();

 private:
  struct Chunk {
    PinnedBytes host;
    std::size_t bytes = 0, used = 0;
  };
  const std::byte* copy_bytes(const void* device, std::size_t bytes);

  Stream& stream_;
  std::vector<Chunk> chunks_;
  Event done_;
  bool is_marked_ = false, is_waited_for_ = true;
};

/// Two pieces of pinned memory through which large data reach a card: one is filled while the other
/// is copied.
class Bounce {
 public:
  static constexpr std::size_t piece_bytes = std::size_t{16} << 20;

  Bounce();
  /// The next piece, once its last copy is done.
  std::span<std::byte> next();
  /// Enqueues the copy of the first `bytes` of the piece that next() gave.
  void send(Stream& stream, std::byte* to, std::size_t bytes);

 private:
  struct Piece {
    PinnedBytes bytes;
    Event copied;
  };
  std::array<Piece, 2> pieces_;
  std::size_t turn_ = 0;
};

/// Writes `bytes` bytes to the card, piece by piece: fill(offset, piece) writes those of the range
/// that starts at `offset`, a multiple of 256. Returns when all copies are enqueued.
void upload_pieces(Stream& stream, std::byte* to, std::size_t bytes,
                   const std::function<void(std::size_t offset, std::span<std::byte> piece)>& fill);

}  // namespace hyb::kernels::cuda
