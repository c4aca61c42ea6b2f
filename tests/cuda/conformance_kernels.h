#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"

/// Kernels that do little but call kernels/cuda/ptx.h, each with its launch. What they read and
/// write, word for word, is stated at each; conformance_test.cpp has the expected answers.
namespace hyb::kernels::testing {

/// Both on the device, aligned to 16 bytes.
struct Words {
  const std::uint32_t* in;
  std::uint32_t* out;
};

/// The part of the shape that the test needs.
inline constexpr int block_threads = 128, half_threads = 64, vote_rounds = 4, giving_rounds = 4;
inline constexpr int grid_blocks = 4, grid_count = grid_blocks * half_threads;
inline constexpr int shuffle_distances = 8, shuffle_ops = 4, smallest_width_bits = 1;
inline constexpr int mask_cases = 6, mask_ops = 7;
inline constexpr int copy_stages = 4, copies = copy_stages * half_threads;
inline constexpr int chain_length = 7;

/// in[round][thread]: the votes. out[round][thread]: any, count.
void block_votes(cuda::Stream& stream, const Words& words);
/// in and out[round][thread]: two warps give, two take, turned round, through named barriers.
void named_barriers(cuda::Stream& stream, const Words& words);
/// in[lane]: a value; then the distances. out[bits of the width - 1][distance][op][lane], the ops
/// being shuffle, xor, up and up of a float.
void shuffles(cuda::Stream& stream, const Words& words);
/// in[case]: a mask; then values and votes of [case][lane]. Lanes inside and outside of the mask
/// do the same separately. out[case][lane][op]: ballot, any, match, sum, min, max, the first's
/// value.
void masked_collectives(cuda::Stream& stream, const Words& words);
/// in: [copies] of 4 words, of 2, of 1, then whether they are there. out: the first three, what
/// another thread copied.
void async_copies(cuda::Stream& stream, const Words& words);
/// in[row of 32][4 words]; lane l names row (5 * l + 3) % 32. out[lane]: the matrices, the matrices
/// transposed.
void matrix_loads(cuda::Stream& stream, const Words& words);
/// in[lane]: a, b, d as fragments, 10 words. out[lane]: d.
void matrix_product(cuda::Stream& stream, const Words& words);
/// in[half_threads][4 words]; out: three copies, by load16_once, load16 and load8.
void vector_copies(cuda::Stream& stream, const Words& words);
/// in[grid_count]; out: the words that all threads change (see there), then what adding 1
/// returned, [grid_count].
inline constexpr int atomic_words = 8;
void atomics(cuda::Stream& stream, const Words& words);
/// The last block to come sums what all have left. out: in[grid_count], the blocks' sums, their
/// sum, a semaphore counter; all 0 before.
void messages(cuda::Stream& stream, const Words& words);
/// in: [grid_count] numbers, as many weights. out[3][grid_count]: what a chain of kernels that may
/// all start early leaves.
void early_chain(cuda::Stream& stream, const Words& words);
/// in[count]: pairs (a, b) of floats. out: [count][8]: pack, round, exp, 2^ of a; a / b; sine,
/// cosine of a turns; a * b + a with a rounded product.
inline constexpr int number_words = 8;
void numbers(cuda::Stream& stream, const Words& words, int count);
/// in[count]: a, b, a selector. out[count][4]: bytes of a and b by the selector, a * b as pairs,
/// the signs of a's bytes 0 and 1, then 2 and 3, extended.
void pairs_of(cuda::Stream& stream, const Words& words, int count);

}  // namespace hyb::kernels::testing
