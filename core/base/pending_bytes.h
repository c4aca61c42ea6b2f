#pragma once

#include <cstddef>
#include <span>

namespace hyb {

/// Bytes that a device is still copying to the machine's memory. Its room is free again when this
/// is destroyed, on any thread; the copy has ended then.
class PendingBytes {
 public:
  virtual ~PendingBytes() = default;
  /// Returns them once they are there, until this is destroyed; on any thread. Throws
  /// Error(runtime) when the copy failed.
  virtual std::span<const std::byte> wait() = 0;
};

}  // namespace hyb
