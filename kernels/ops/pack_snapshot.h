#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// One recurrent layer in a slot and in a packed snapshot. All offsets are in bytes from the
/// beginning of the slot or of the snapshot.
struct SnapshotPiece {
  std::size_t slot_window, slot_state;                      ///< in the slot
  std::size_t packed_window, packed_scales, packed_values;  ///< in the packed snapshot
  std::size_t window_bytes;                                 ///< copied as they are
  std::int64_t rows;  ///< of the state, over all heads; 0: a convolution without a state
  std::int64_t columns;
};

/// Packs the recurrent state of one slot into a snapshot of about a quarter (f32) or half (bf16) of
/// its bytes: int8, symmetric, one scale for every row x of a head's state. Windows are copied.
///
///   scale = max |x| / 127, rounded up to bf16, and at least 2^-126
///   value = x / scale, rounded to the nearest whole number, ties to even     -127 .. 127
///   x'    = value * scale                                                    (unpack_snapshot)
///
/// |x - x'| <= scale / 2, and scale <= max |x| / 127 * (1 + 2^-7): a bf16 scale takes the two bytes
/// of an f16 one and reaches as far as the state's own type. value * scale is exact in f32; a bf16
/// state rounds it once more. Zeros come back as zeros. As everywhere, an element below 2^-126
/// counts as zero. A row with a NaN, or with a magnitude of 2^127 or more, comes back as NaN
/// throughout: such a state is lost in any case, and stays visible.
///
/// For published snapshots only: inside of the recurrence the errors would add up. Packing what was
/// unpacked may round again.
///
/// shapes  slot u8 [slot bytes]   packed u8 [packed bytes]   state of a piece [rows, columns]
/// types   state: f32 or bf16   scales: bf16   values: i8; states and scales lie aligned
/// numbers every row by itself: bytes depend neither on the instruction set nor on the threads
/// writes  the pieces' windows, scales and values in packed; the gaps between them are not written
struct PackSnapshot {
  std::span<const SnapshotPiece> pieces;
  DType state_dtype = DType::f32;
  Tensor slot, packed;
};

/// The reverse: writes the pieces' windows and states in slot.
struct UnpackSnapshot {
  std::span<const SnapshotPiece> pieces;
  DType state_dtype = DType::f32;
  Tensor packed, slot;
};

void pack_snapshot(Queue& queue, const PackSnapshot& op);
void unpack_snapshot(Queue& queue, const UnpackSnapshot& op);

}  // namespace hyb::kernels
