#pragma once

#include <limits>

#include "kernels/cuda/stream.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/project.h"
#include "kernels/ops/altup.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/attention_step.h"
#include "kernels/ops/cap.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/delta_rule.h"
#include "kernels/ops/draft_ring.h"
#include "kernels/ops/gated_activation.h"
#include "kernels/ops/gated_norm.h"
#include "kernels/ops/gather.h"
#include "kernels/ops/latent_attention.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/moe.h"
#include "kernels/ops/moe_route.h"
#include "kernels/ops/pack_snapshot.h"
#include "kernels/ops/recurrent_step.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/ops/rope_kv_write.h"
#include "kernels/ops/s6.h"
#include "kernels/ops/sample.h"
#include "kernels/ops/scale_columns.h"
#include "kernels/ops/shift_rows.h"
#include "kernels/ops/sparse_gate.h"
#include "kernels/ops/ssd.h"

namespace hyb::kernels::cuda {

/// The ops' CUDA routes. Arguments are checked by the op before; addresses are the device's, tables
/// too. Nothing here allocates, waits or reads memory of the device: all of it can be captured
/// in a Graph. Each answer depends on its own inputs and on no other row, and is the same in every
/// run; how far it may be from the plain loop is stated at the kernel.

void rms_norm(Stream& stream, const RmsNorm& op);
/// Within (H + 16) * 2^-24 of the exact one, relatively to the largest c[t,i] of the row, not
/// counting the rounding that the contract names.
void layer_norm(Stream& stream, const LayerNorm& op);
void gated_norm(Stream& stream, const GatedNorm& op);

/// weight: rows. x of bf16 whose rows are 16-byte aligned, and a weight of such rows or of codes in
/// whole eights: a route by the row count, each with an order of sums of its own; one for all with
/// batch_invariant(). Else a plain kernel.
void linear(Stream& stream, const Linear& op);
/// Up to 4 rows of bf16, by weights of bf16 or in 12 bits: one launch. Always linear's bits.
void linear_heads(Stream& stream, const LinearHeads& op);
/// weight as for linear. The same bits as the norm, linear and the activation by themselves; normed
/// and product are not always written.
void project(Stream& stream, const Project& op);

/// weight: rows, aligned to its elements. A token outside of the vocabulary is no error: its row of
/// y is NaN.
void embed(Stream& stream, const Embed& op);
/// A row outside of x is no error: its row of y is NaN. NaNs may lose their payload.
void gather_rows(Stream& stream, const GatherRows& op);
void spread_columns(Stream& stream, const SpreadColumns& op);

/// The bits of the plain loop. Numbers of tables are not checked.
void extend_rows(Stream& stream, const ExtendRows& op);
void keep_rows(Stream& stream, const KeepRows& op);
/// Spans without tokens may come after the others; rows after the last span are not written.
void shift_rows(Stream& stream, const ShiftRows& op);

void gated_activation(Stream& stream, const GatedActivation& op);

/// Within 2^-20 of the plain loop's, relatively.
void cap(Stream& stream, const Cap& op);

/// Within (n + 16) * 2^-24 of the exact ones, relatively to the sum of the magnitudes that are
/// added, not counting the roundings that the contract names.
void altup_predict(Stream& stream, const AltupPredict& op);
void altup_correct(Stream& stream, const AltupCorrect& op);
/// Within (H + 16) * 2^-24 of the exact one, relatively, not counting the rounding.
void match_magnitude(Stream& stream, const MatchMagnitude& op);
/// The bits of the plain loop.
void add_rows(Stream& stream, const AddRows& op);
/// The cutoff within (I + 16) * 2^-24 of the exact one, relatively to the largest of the row.
void sparse_gate(Stream& stream, const SparseGate& op);

/// The bits of the plain loop.
void scale_columns(Stream& stream, const ScaleColumns& op);

/// Spans without tokens may come after the others. The bits of any other cut of a sequence,
/// and of mamba_step's convolution.
void causal_conv(Stream& stream, const CausalConv& op);
/// Spans without tokens may come after the others. The bits of any other cut of a sequence.
void gated_conv(Stream& stream, const GatedConv& op);

/// Pages as KvPage (kernels/cuda/tables.h) lays them out. k is not written back; a row after the
/// last span is neither changed nor written anywhere. Without norms and frequencies this is
/// kv_write.
void rope_kv_write(Stream& stream, const RopeKvWrite& op);

/// Pages as KvPage (kernels/cuda/tables.h) lays them out. Spans without tokens may come after the
/// others; rows after the last span are not written. scale is positive. The bits of an answer
/// depend on its own position's keys alone, whatever the cut, the neighbours or the workspace. bf16
/// with head_dim a multiple of 8 (16 where pages are F8_E4M3) up to 256 and 16-byte aligned rows
/// (the gate's too, unless it has one number per head) goes through the matrix instructions.
/// workspace: 16-byte aligned and zeroed once; launches leave its first bytes zero.
void paged_attention(Stream& stream, const PagedAttention& op);
/// The bits of rope_kv_write and attention, and places of spans without tokens as there. One
/// launch where attention takes the matrix instructions, with head_dim a multiple of 16,
/// pairs of 8, and 16-byte aligned norms; else the two.
void attention_step(Stream& stream, const RopeKvWrite& write, const PagedAttention& read);
/// Works as kernels::attention_workspace_bytes, for the device.
std::size_t attention_workspace_bytes(std::int64_t tokens, std::int64_t heads,
                                      std::int64_t head_dim, std::int64_t positions);

void rope(Stream& stream, const Rope& op);
/// Spans without tokens may come after the others; rows after the last span are not written, by
/// either. Pages as on the CPU.
void latent_write(Stream& stream, const LatentWrite& op);
/// The bits of an answer are as attention's, and so are scale and workspace. bf16 over pages of
/// bf16 or F8_E4M3 with latents of up to 512 and up to 64 turned numbers, whole eights, goes
/// through the matrix instructions. y is rounded before and after the gate.
void latent_attention(Stream& stream, const LatentAttention& op);
std::size_t latent_workspace_bytes(std::int64_t tokens, std::int64_t heads, std::int64_t positions);

void mamba_step(Stream& stream, const MambaStep& op);
/// Spans without tokens may come after the others. f32, batch_invariant(), token_by_token and steps
/// of mostly short spans go token by token, with the bits of any other cut and of mamba_step; else
/// bf16 goes in chunks, where a bf16 state is rounded at the ends of spans only, and cuts change
/// the answer within the bounds that are stated at the kernel.
void mamba_scan(Stream& stream, const MambaScan& op);

/// Spans without tokens may come after the others. The bits of any other cut of a sequence.
void selective_scan(Stream& stream, const SelectiveScan& op);

/// Spans without tokens may come after the others. f32, batch_invariant(), token_by_token, few
/// tokens and short spans among longer ones go token by token, with the bits of any other cut and
/// of delta_step, as all does without a workspace; else bf16 goes in chunks, where a bf16 state is
/// rounded at the ends of spans only, and cuts change the answer within the bounds that are stated
/// at the kernel.
void delta_rule(Stream& stream, const DeltaRule& op);
/// The bits of causal_conv and of delta_rule token by token. convolved is not used.
void delta_step(Stream& stream, const DeltaStep& op);

/// The pieces travel with the launches. The bytes of the plain loop.
void pack_snapshot(Stream& stream, const PackSnapshot& op);
void unpack_snapshot(Stream& stream, const UnpackSnapshot& op);

/// Waits for the answers. workspace is not used; logits change and change back. A weight below
/// 2^-44 of the largest is none; sums are exact, so where rounding alone decides the plain loop may
/// choose another token.
void sample(Stream& stream, const Sample& op);

void moe_route(Stream& stream, const MoeRoute& op);
/// In workspace moe_workspace_bytes of this namespace, zeros before its first use. Up to 16 tokens
/// of bf16 take three launches, four with latent experts, where the weights but the router and the
/// gate are all of one code or all bf16; else, and for more tokens, experts go by tiles, codes too.
void fused_moe(Stream& stream, const FusedMoe& op);
std::size_t moe_workspace_bytes(const MoeShape& shape);

// The routes of cuda::delta_rule, which chooses among them by what the host knows.

/// Token by token, the state in registers: the bits of any other cut. Any shape. Chains, or spans
/// that are in none, of more than `tokens_max` tokens are skipped.
void delta_rule_scan(Stream& stream, const DeltaRule& op,
                     int tokens_max = std::numeric_limits<int>::max());

/// In chunks of 64 tokens, by matrix instructions; where there are several spans, those of at most
/// delta_scan_tokens go token by token, with the bits of the scan: a chain goes one way or the
/// other by its sum. A bf16 state is rounded where a span ends only; where a sequence is cut
/// changes the answer, within the bounds that are stated at the kernel.
inline constexpr int delta_scan_tokens = 16;
void delta_rule_chunked(Stream& stream, const DeltaRule& op);
/// bf16 x, a shape and alignment that it has a kernel for, and workspace enough.
bool delta_rule_chunked_takes(const DeltaRule& op);

// The routes of cuda::mamba_scan, which chooses among them by what the host knows.

/// Token by token, the state in registers: the bits of mamba_step and of any other cut. Any shape.
void ssd_scan(Stream& stream, const MambaScan& op);

/// In chunks of 64 tokens, by matrix instructions, cut into segments where spans are few and the
/// workspace allows it. A bf16 state is rounded where a span ends only; where a sequence is cut
/// changes the answer, within the bounds that are stated at the kernel.
void ssd_chunked(Stream& stream, const MambaScan& op);
/// bf16 x, and a shape and alignment that it has a kernel for.
bool ssd_chunked_takes(const MambaScan& op);

}  // namespace hyb::kernels::cuda
