#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <nv/target>

#include "kernels/floats.h"

/// This file has what a kernel does that plain C++ cannot say: shared memory, warps, barriers,
/// asynchronous copies, matrix instructions, early starts. The only file with inline PTX and with
/// CUDA's own intrinsics; kernels use these names, CUDA's keywords, threadIdx and its kin, the
/// vector types, and plain C++ for the rest. tests/cuda_emulator/shadow has a file of the same name
/// that shadows this one when the kernels are compiled for the emulator: both have the same
/// functions.
namespace hyb::kernels::cuda {

inline constexpr int warp_size = 32;
inline constexpr unsigned full_warp = 0xffffffffU;

// shared memory

/// An array in shared memory. The emulator checks every index.
template <typename T, int N>
struct SharedArray {
  T values[N];

  __device__ T& operator[](int i) { return values[i]; }
  __device__ const T& operator[](int i) const { return values[i]; }
};

/// The launch's dynamic shared memory as a T, which is at most 128-byte aligned.
template <typename T>
__device__ __forceinline__ T& dynamic_shared() {
  extern __shared__ __align__(128) unsigned char hyb_dynamic_shared[];
  return *reinterpret_cast<T*>(hyb_dynamic_shared);
}

/// The block's one T in static shared memory: two calls with the same T are the same object.
template <typename T>
__device__ __forceinline__ T& shared_object() {
  __shared__ alignas(T) unsigned char bytes[sizeof(T)];
  return *reinterpret_cast<T*>(bytes);
}

// loads and stores of vectors; the address is a multiple of the size

__device__ __forceinline__ uint2 load8(const void* from) {
  return *static_cast<const uint2*>(from);
}
__device__ __forceinline__ uint4 load16(const void* from) {
  return *static_cast<const uint4*>(from);
}
/// Global memory that no thread writes during the kernel and that is read once: weights.
__device__ __forceinline__ uint4 load16_once(const void* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}
/// Brings global memory that no kernel in flight writes nearer; an answer never depends on it.
__device__ __forceinline__ void prefetch(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}
__device__ __forceinline__ void store8(void* to, uint2 value) { *static_cast<uint2*>(to) = value; }
__device__ __forceinline__ void store16(void* to, uint4 value) { *static_cast<uint4*>(to) = value; }

// barriers

/// All threads of the block that have not left the kernel.
__device__ __forceinline__ void sync_block() { __syncthreads(); }
__device__ __forceinline__ bool sync_block_any(bool vote) { return __syncthreads_or(vote) != 0; }
__device__ __forceinline__ int sync_block_count(bool vote) { return __syncthreads_count(vote); }

/// Barrier 1 to 15 for `threads` threads, whole warps.
__device__ __forceinline__ void barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// early starts (programmatic dependent launch; from sm_90 on, else nothing happens)

/// Returns when the kernel before this one has ended and its writes are seen. Before it a kernel
/// may read only what no kernel in flight writes, and write only what none of them reads.
__device__ __forceinline__ void wait_for_previous_kernel() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.wait;" ::: "memory");))
}
/// The next kernel of the stream may start once every block has called this or ended.
__device__ __forceinline__ void let_next_kernel_start() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.launch_dependents;" ::: "memory");))
}
/// Both, of a kernel that has nothing to do between.
__device__ __forceinline__ void start_next_and_wait() {
  let_next_kernel_start();
  wait_for_previous_kernel();
}

// warps: every lane of the mask calls the same function with the same mask

__device__ __forceinline__ void sync_warp(unsigned mask = full_warp) { __syncwarp(mask); }

/// The value of lane `lane` of this one's segment of `width` lanes (a power of two).
template <typename T>
__device__ __forceinline__ T shuffle(T value, int lane, unsigned mask = full_warp, int width = 32) {
  return __shfl_sync(mask, value, lane, width);
}
template <typename T>
__device__ __forceinline__ T shuffle_xor(T value, int bits, unsigned mask = full_warp,
                                         int width = 32) {
  return __shfl_xor_sync(mask, value, bits, width);
}
/// From `distance` lanes below; lanes that have none keep their own.
template <typename T>
__device__ __forceinline__ T shuffle_up(T value, unsigned distance, unsigned mask = full_warp,
                                        int width = 32) {
  return __shfl_up_sync(mask, value, distance, width);
}

__device__ __forceinline__ unsigned ballot(bool vote, unsigned mask = full_warp) {
  return __ballot_sync(mask, vote);
}
__device__ __forceinline__ bool any_lane(bool vote, unsigned mask = full_warp) {
  return __any_sync(mask, vote) != 0;
}
/// The lanes of the mask that have the same value.
__device__ __forceinline__ unsigned match_any(unsigned value, unsigned mask = full_warp) {
  return __match_any_sync(mask, value);
}
__device__ __forceinline__ unsigned reduce_add(unsigned value, unsigned mask = full_warp) {
  return __reduce_add_sync(mask, value);
}
__device__ __forceinline__ unsigned reduce_min(unsigned value, unsigned mask = full_warp) {
  return __reduce_min_sync(mask, value);
}
__device__ __forceinline__ unsigned reduce_max(unsigned value, unsigned mask = full_warp) {
  return __reduce_max_sync(mask, value);
}

// asynchronous copies from global to shared memory

/// Copies 16 aligned bytes, or writes 16 zeros where `is_there` is false: `from` is not read then.
/// Not to be read before this thread has waited for the group and all have passed a barrier.
__device__ __forceinline__ void cp_async16(void* to, const void* from, bool is_there = true) {
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
               "r"(is_there ? 16 : 0)
               : "memory");
}
/// The same with 4 or 8 bytes, through the first-level cache.
template <int Bytes>
__device__ __forceinline__ void cp_async(void* to, const void* from, bool is_there = true) {
  static_assert(Bytes == 4 || Bytes == 8);
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(Bytes),
               "r"(is_there ? Bytes : 0)
               : "memory");
}
/// Ends a group of copies.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;"); }
/// Waits for all groups of this thread but the `Pending` last ones.
template <int Pending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// matrix instructions: whole warps; fragments as in PTX ISA, "Matrix Fragments for mma"

/// Four 8x8 matrices of 16-bit elements. Lane l names row l%8 of matrix l/8 (16 aligned bytes of
/// shared memory), and gets elements 2*(l%4), 2*(l%4)+1 of row l/4 of each.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&d)[4], const void* row) {
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(at)
               : "memory");
}
/// The same of the transposed matrices.
__device__ __forceinline__ void ldmatrix_x4_transposed(std::uint32_t (&d)[4], const void* row) {
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(at)
               : "memory");
}

/// d[16,8] += a[16,16] * b[16,8] in f32; a row-major, b column-major, two elements to a register.
__device__ __forceinline__ void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                         std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The same number, which the compiler cannot foresee: nothing made of it outlives a loop's round.
__device__ __forceinline__ int hidden(int number) {
  asm volatile("" : "+r"(number));
  return number;
}

// between blocks

/// Takes integers only: floats would be summed in an order that changes from run to run.
template <typename T>
__device__ __forceinline__ T atomic_add(T* at, T value) {
  return atomicAdd(at, value);
}
template <typename T>
__device__ __forceinline__ T atomic_or(T* at, T value) {
  return atomicOr(at, value);
}

/// The whole device sees writes of this thread before it earlier than writes after it.
__device__ __forceinline__ void fence() { __threadfence(); }

// numbers

/// Within 2 + 1.173 |x| units in the last place, or faster than exact: the CUDA programming guide's
/// tables of intrinsics have the bounds.
__device__ __forceinline__ float exp_fast(float x) { return __expf(x); }
/// 2^x within 2 units in the last place; denormal answers may be 0; 2^-infinity is 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// Within 2 units in the last place where |b| is 2^-126 to 2^126; zero where |b| is larger.
__device__ __forceinline__ float divide_fast(float a, float b) { return __fdividef(a, b); }
/// Computes sine and cosine of the angle 2 pi * turns, within 2^-23.
__device__ __forceinline__ void sine_cosine_of_turns(float turns, float& sine, float& cosine) {
  sincospif(2.0F * turns, &sine, &cosine);
}

/// a * b, rounded: never part of a fused multiply-add, where the bits of a following sum matter.
__device__ __forceinline__ float product_rounded(float a, float b) { return __fmul_rn(a, b); }

/// Byte i is byte `selector >> 4i & 7` of a (0 to 3) and b (4 to 7).
__device__ __forceinline__ std::uint32_t permute_bytes(std::uint32_t a, std::uint32_t b,
                                                       std::uint32_t selector) {
  return __byte_perm(a, b, selector);
}

/// Bytes First and First + 1 with their signs extended to 16 bits each.
template <int First>
__device__ __forceinline__ std::uint32_t extend_bytes(std::uint32_t bytes) {
  static_assert(First == 0 || First == 2);
  std::uint32_t halves;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(halves) : "r"(bytes), "n"(First == 0 ? 0x9180 : 0xb3a2));
  return halves;
}

/// The number of the lower 16 bits as f16.
__device__ __forceinline__ float half_to_float(std::uint32_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<std::uint16_t>(bits)));
  return value;
}

/// a * b + c of three pairs of bf16, each rounded to nearest, once.
__device__ __forceinline__ std::uint32_t multiply_add_pairs(std::uint32_t a, std::uint32_t b,
                                                            std::uint32_t c) {
  std::uint32_t pair;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(c));
  return pair;
}

/// The products of two pairs of bf16, each rounded to nearest; denormal factors count.
__device__ __forceinline__ std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
  std::uint32_t pair;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(0x80008000U));
  return pair;
}

/// Rounded to nearest, ties to even, as to_bf16 does; NaN stays NaN.
__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ bf16 round_bf16(float value) {
  return {static_cast<std::uint16_t>(pack_bf16(value, 0.0F))};
}

}  // namespace hyb::kernels::cuda
