#pragma once

#include "kernels/ops/conv.h"
#include "kernels/ops/delta_rule.h"
#include "kernels/ops/ssd.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// The convolution and the recurrence of a mixer for one more token of every sequence; token r is
/// the next one of the sequence in slot read_slot[r] of the recurrence's tables, which serve both:
///
///   recurrence.x = causal_conv(convolution.x)   recurrence.y = recurrence(recurrence.x)
///
/// Rows whose write_slot is -1 have no sequence: they come after the others, nothing is read or
/// written for them, and their y may hold anything. Rows are taken in no order, so no row may
/// continue the one before it: chains are for causal_conv, delta_rule and ssd.
///
/// shapes  as in the two, of R rows without span_begin   convolution.y: recurrence.x, which is room
///         to work in   read_slot, write_slot, semaphores [R]
/// types   as in the two   semaphores: i32
/// numbers rounded as the two round: bit-identical to them
/// writes  recurrence.y, the named slots of windows and state, recurrence.x; semaphores are zeros
///         before and after
template <typename Recurrence>
struct RecurrentStep {
  CausalConv convolution;
  Recurrence recurrence;
  Tensor semaphores;
};
using DeltaStep = RecurrentStep<DeltaRule>;  ///< of a gated delta net
using MambaStep = RecurrentStep<MambaScan>;  ///< of a Mamba-2 mixer

void delta_step(Queue& queue, const DeltaStep& op);
void mamba_step(Queue& queue, const MambaStep& op);

}  // namespace hyb::kernels
