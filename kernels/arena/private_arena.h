#pragma once

#include <cstdint>

#include "kernels/arena/arena.h"
#include "kernels/arena/handle_table.h"

namespace hyb::kernels {

/// What is found at an address that nothing is mapped to.
enum class Unmapped : std::uint8_t {
  faults,  ///< a fault; every neighbourhood of handles is a mapping of its own
  zeros,   ///< zeros, which cost nothing until they are written: a range is one mapping for ever
};

/// The memory of this machine for a handle that stands at one place only: ordinary private memory,
/// for which systems use huge pages more readily than for shared memory, and which no limit on the
/// size of files (ulimit -f) touches. Nothing aliases: a mapping starts with zeros, and unmapping
/// frees its bytes. Handles cannot be exported.
class PrivateArena final : public Arena {
 public:
  /// `handle_bytes` is a multiple of the system's page.
  explicit PrivateArena(std::size_t handle_bytes, Unmapped unmapped = Unmapped::faults);

  bool aliases() const override { return false; }
  std::byte* reserve(std::size_t bytes) override;
  void unreserve(std::byte* at, std::size_t bytes) override;
  HandleId create() override { return table_.add(); }
  void release(HandleId handle) override { table_.remove(handle); }
  void map(std::byte* at, std::span<const HandleId> handles) override;
  void unmap(std::byte* at, HandleId handle) override;
  ExportedHandle export_handle(HandleId handle) const override;
  void fill(std::byte* at, std::size_t bytes, std::byte value) override;
  std::size_t mappings_max() const override;
  std::size_t handles_held() const override { return table_.held(); }

 private:
  Unmapped unmapped_;
  HandleTable table_;
};

}  // namespace hyb::kernels
