#include "tests/cuda/conformance_kernels.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.h"

namespace hyb::kernels::testing {
namespace {

using namespace cuda;

__device__ __forceinline__ int thread_index() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int grid_index() {
  return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}
__device__ __forceinline__ void begin() {
  let_next_kernel_start();
  wait_for_previous_kernel();
}

__global__ void block_votes_kernel(const Words p) {
  begin();
  for (int round = 0; round < vote_rounds; ++round) {
    const int at = round * block_threads + thread_index();
    const bool vote = p.in[at] != 0;
    p.out[2 * at] = sync_block_any(vote) ? 1 : 0;
    p.out[2 * at + 1] = static_cast<std::uint32_t>(sync_block_count(vote));
  }
}

__global__ void named_barriers_kernel(const Words p) {
  constexpr int full = 1, empty = 15, taken = 7;
  auto& values = shared_object<SharedArray<std::uint32_t, half_threads>>();
  const int t = thread_index() % half_threads;
  const bool gives = thread_index() >= half_threads;
  begin();
  for (int round = 0; round < giving_rounds; ++round) {
    const int at = round * half_threads + t;
    if (gives) {
      if (round > 0) barrier_sync(empty, block_threads);
      values[t] = p.in[at];
      barrier_sync(full, block_threads);
    } else {
      barrier_sync(full, block_threads);
      const std::uint32_t value = values[half_threads - 1 - t];
      barrier_sync(taken, half_threads);
      values[t] = value + 1;  // what these two warps only say to each other
      barrier_sync(taken, half_threads);
      p.out[at] = values[(t + warp_size) % half_threads];
      if (round + 1 < giving_rounds) barrier_sync(empty, block_threads);
    }
  }
}

__global__ void shuffles_kernel(const Words p) {
  const int lane = thread_index();
  begin();
  const std::uint32_t value = p.in[lane];
  std::uint32_t* out = p.out + lane;
  for (int bits = smallest_width_bits; bits <= 5; ++bits) {
    for (int k = 0; k < shuffle_distances; ++k) {
      const int width = 1 << bits;
      const std::uint32_t distance = p.in[warp_size + k];
      out[0] = shuffle(value, static_cast<int>(distance) + 3 * lane, full_warp, width);
      out[32] = shuffle_xor(value, static_cast<int>(distance), full_warp, width);
      out[64] = shuffle_up(value, distance, full_warp, width);
      const float number = shuffle_up(static_cast<float>(value), distance, full_warp, width);
      out[96] = static_cast<std::uint32_t>(number);
      out += shuffle_ops * warp_size;
    }
  }
}

__device__ void collect(std::uint32_t mask, std::uint32_t value, bool vote, std::uint32_t* out) {
  int first = 0;
  while ((mask >> first & 1U) == 0) ++first;
  sync_warp(mask);
  out[0] = ballot(vote, mask);
  out[1] = any_lane(vote, mask) ? 1 : 0;
  out[2] = match_any(value, mask);
  out[3] = reduce_add(value, mask);
  out[4] = reduce_min(value, mask);
  out[5] = reduce_max(value, mask);
  out[6] = shuffle(value, first, mask);
}

__global__ void masked_collectives_kernel(const Words p) {
  const int lane = thread_index();
  begin();
  for (int c = 0; c < mask_cases; ++c) {
    const std::uint32_t mask = p.in[c];
    const int at = c * warp_size + lane;
    const std::uint32_t value = p.in[mask_cases + at];
    const bool vote = p.in[mask_cases + mask_cases * warp_size + at] != 0;
    if ((mask >> lane & 1U) != 0) {
      collect(mask, value, vote, p.out + at * mask_ops);
    } else {
      collect(~mask, value, vote, p.out + at * mask_ops);
    }
    sync_warp();
  }
}

struct Copied {
  SharedArray<uint4, copies> wide;
  SharedArray<uint2, copies> middle;
  SharedArray<std::uint32_t, copies> narrow;
};

/// Stage `stage` of another thread's copies, once all have waited for it.
__device__ void take_stage(const Copied& copied, int stage, std::uint32_t* out) {
  sync_block();
  const int at = stage * half_threads + thread_index();
  const int other = stage * half_threads + (thread_index() + 33) % half_threads;
  store16(out + 4 * at, copied.wide[other]);
  store8(out + 4 * copies + 2 * at, copied.middle[other]);
  out[6 * copies + at] = copied.narrow[other];
}

__global__ void async_copies_kernel(const Words p) {
  auto& copied = dynamic_shared<Copied>();
  begin();
  for (int stage = 0; stage < copy_stages; ++stage) {
    const int at = stage * half_threads + thread_index();
    const bool is_there = p.in[7 * copies + at] != 0;
    cp_async16(&copied.wide[at], is_there ? p.in + 4 * at : nullptr, is_there);
    cp_async<8>(&copied.middle[at], p.in + 4 * copies + 2 * at, is_there);
    cp_async<4>(&copied.narrow[at], p.in + 6 * copies + at, is_there);
    cp_async_commit();
  }
  cp_async_wait<3>();
  take_stage(copied, 0, p.out);
  cp_async_wait<1>();
  take_stage(copied, 1, p.out);
  take_stage(copied, 2, p.out);
  cp_async_wait<0>();
  take_stage(copied, 3, p.out);
}

__global__ void matrix_loads_kernel(const Words p) {
  constexpr int row_vectors = 3;  // one is the row, the others keep rows apart
  auto& rows = shared_object<SharedArray<uint4, row_vectors * warp_size>>();
  const int lane = thread_index();
  begin();
  rows[row_vectors * lane] = load16(p.in + 4 * lane);
  sync_warp();
  const uint4* const row = &rows[row_vectors * ((5 * lane + 3) % warp_size)];
  std::uint32_t matrices[4], transposed[4];
  ldmatrix_x4(matrices, row);
  ldmatrix_x4_transposed(transposed, row);
  std::uint32_t* const out = p.out + 8 * lane;
  for (int i = 0; i < 4; ++i) {
    out[i] = matrices[i];
    out[4 + i] = transposed[i];
  }
}

__global__ void matrix_product_kernel(const Words p) {
  begin();
  const std::uint32_t* const in = p.in + 10 * thread_index();
  const std::uint32_t a[4] = {in[0], in[1], in[2], in[3]};
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = std::bit_cast<float>(in[6 + i]);
  mma_bf16(d, a, in[4], in[5]);
  for (int i = 0; i < 4; ++i) p.out[4 * thread_index() + i] = std::bit_cast<std::uint32_t>(d[i]);
}

__global__ void vector_copies_kernel(const Words p) {
  constexpr int words = 4 * half_threads;
  const int at = 4 * thread_index();
  begin();
  prefetch(p.in + at);
  store16(p.out + at, load16_once(p.in + at));
  store16(p.out + words + at, load16(p.in + at));
  store8(p.out + 2 * words + at, load8(p.in + at));
  store8(p.out + 2 * words + at + 2, load8(p.in + at + 2));
}

__global__ void atomics_kernel(const Words p) {
  const int i = grid_index();
  begin();
  const std::uint32_t value = p.in[i];
  atomic_add(p.out, value);
  atomic_or(p.out + 1, value);
  atomic_add(reinterpret_cast<std::int32_t*>(p.out) + 2, static_cast<std::int32_t>(value));
  atomic_add(reinterpret_cast<unsigned long long*>(p.out + 4), 0x100000000ULL + value);
  p.out[atomic_words + i] = atomic_add(p.out + 3, 1U);
}

__global__ void messages_kernel(const Words p) {
  auto& is_last = shared_object<SharedArray<bool, 1>>();
  std::uint32_t* const sums = p.out + grid_count;
  const int t = thread_index(), i = grid_index(), block = static_cast<int>(blockIdx.x);
  begin();
  p.out[i] = p.in[i];
  sync_block();
  if (t == 0) {  // the last block to come sums what all have left
    std::uint32_t sum = 0;
    for (int j = 0; j < half_threads; ++j) sum += p.out[block * half_threads + j];
    sums[block] = sum;
    fence();
    is_last[0] = atomic_add(sums + grid_blocks + 1, 1U) == grid_blocks - 1;
    fence();
  }
  sync_block();
  if (!is_last[0] || t != 0) return;
  for (int j = 0; j < grid_blocks; ++j) sums[grid_blocks] += sums[j];
}

struct Link {
  const std::uint32_t* from;
  const std::uint32_t* weights;
  std::uint32_t* to;
};

__global__ void link_kernel(const Link p) {
  const int i = grid_index();
  let_next_kernel_start();
  const std::uint32_t weight = p.weights[i];
  wait_for_previous_kernel();
  p.to[i] = 3 * p.from[(i + half_threads) % grid_count] + weight;
}

struct Numbers {
  Words words;
  int count;
};

__global__ void numbers_kernel(const Numbers p) {
  begin();
  const int i = grid_index();
  if (i >= p.count) return;
  const float a = std::bit_cast<float>(p.words.in[2 * i]);
  const float b = std::bit_cast<float>(p.words.in[2 * i + 1]);
  std::uint32_t* const out = p.words.out + number_words * i;
  float sine, cosine;
  sine_cosine_of_turns(a, sine, cosine);
  out[0] = pack_bf16(a, b);
  out[1] = round_bf16(a).bits;
  out[2] = std::bit_cast<std::uint32_t>(exp_fast(a));
  out[3] = std::bit_cast<std::uint32_t>(exp2_fast(a));
  out[4] = std::bit_cast<std::uint32_t>(divide_fast(a, b));
  out[5] = std::bit_cast<std::uint32_t>(sine);
  out[6] = std::bit_cast<std::uint32_t>(cosine);
  out[7] = std::bit_cast<std::uint32_t>(product_rounded(a, b) + a);
}

__global__ void pairs_kernel(const Numbers p) {
  begin();
  const int i = grid_index();
  if (i >= p.count) return;
  const std::uint32_t* const in = p.words.in + 3 * i;
  std::uint32_t* const out = p.words.out + 4 * i;
  out[0] = permute_bytes(in[0], in[1], in[2]);
  out[1] = multiply_pairs(in[0], in[1]);
  out[2] = extend_bytes<0>(in[0]);
  out[3] = extend_bytes<2>(in[0]);
}

}  // namespace

void block_votes(Stream& stream, const Words& words) {
  launch(stream, {.blocks = 1, .threads = block_threads, .waits = true}, block_votes_kernel, words);
}
void named_barriers(Stream& stream, const Words& words) {
  launch(stream, {.blocks = 1, .threads = block_threads, .waits = true}, named_barriers_kernel,
         words);
}
void shuffles(Stream& stream, const Words& words) {
  launch(stream, {.blocks = 1, .threads = warp_size, .waits = true}, shuffles_kernel, words);
}
void masked_collectives(Stream& stream, const Words& words) {
  launch(stream, {.blocks = 1, .threads = warp_size, .waits = true}, masked_collectives_kernel,
         words);
}
void async_copies(Stream& stream, const Words& words) {
  launch(stream,
         {.blocks = 1, .threads = half_threads, .shared_bytes = sizeof(Copied), .waits = true},
         async_copies_kernel, words);
}
void matrix_loads(Stream& stream, const Words& words) {
  launch(stream, {.blocks = 1, .threads = warp_size, .waits = true}, matrix_loads_kernel, words);
}
void matrix_product(Stream& stream, const Words& words) {
  launch(stream, {.blocks = 1, .threads = warp_size, .waits = true}, matrix_product_kernel, words);
}
void vector_copies(Stream& stream, const Words& words) {
  launch(stream, {.blocks = 1, .threads = half_threads, .waits = true}, vector_copies_kernel,
         words);
}
void atomics(Stream& stream, const Words& words) {
  launch(stream, {.blocks = grid_blocks, .threads = half_threads, .waits = true}, atomics_kernel,
         words);
}
void messages(Stream& stream, const Words& words) {
  launch(stream, {.blocks = grid_blocks, .threads = half_threads, .waits = true}, messages_kernel,
         words);
}
void early_chain(Stream& stream, const Words& words) {
  const std::uint32_t* from = words.in;
  for (int k = 0; k < chain_length; ++k) {
    std::uint32_t* const to = words.out + k % 3 * grid_count;
    launch(stream, {.blocks = grid_blocks, .threads = half_threads}, link_kernel,
           Link{.from = from, .weights = words.in + grid_count, .to = to});
    from = to;
  }
}
void numbers(Stream& stream, const Words& words, int count) {
  launch(stream, {.blocks = pieces(count, half_threads), .threads = half_threads, .waits = true},
         numbers_kernel, Numbers{.words = words, .count = count});
}
void pairs_of(Stream& stream, const Words& words, int count) {
  launch(stream, {.blocks = pieces(count, half_threads), .threads = half_threads, .waits = true},
         pairs_kernel, Numbers{.words = words, .count = count});
}

}  // namespace hyb::kernels::testing
