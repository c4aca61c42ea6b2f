#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/floats.h"
#include "tests/cuda_emulator/device/inexact.h"
#include "tests/cuda_emulator/device/matrix.h"
#include "tests/cuda_emulator/device/sync.h"

/// The names of kernels/cuda/ptx.h, which has the contracts, for the emulator. Every function
/// takes the place it is called from, so that a fault can name it.
namespace hyb::kernels::cuda {

using emulator::Where;

inline constexpr int warp_size = 32;
inline constexpr unsigned full_warp = 0xffffffffU;

// Shared memory

template <typename T, int N>
struct SharedArray {
  T values[N];

  /// What is said about a place cannot be a default of an operator: the fault names this line.
  T& operator[](int i) {
    emulator::check_index(i, N, Where::current());
    return values[i];
  }
  const T& operator[](int i) const {
    emulator::check_index(i, N, Where::current());
    return values[i];
  }
};

template <typename T>
T& dynamic_shared(Where where = Where::current()) {
  return *static_cast<T*>(emulator::dynamic_shared(sizeof(T), alignof(T), where));
}

template <typename T>
inline constexpr char object_key = 0;

template <typename T>
T& shared_object(Where where = Where::current()) {
  return *static_cast<T*>(emulator::shared_object(&object_key<T>, sizeof(T), alignof(T), where));
}

// Loads and stores of vectors

template <typename V>
__forceinline__ V load_vector(const void* from, Where where) {
  emulator::check_alignment("a vector load", from, sizeof(V), where);
#if defined(__SANITIZE_THREAD__)  // one access, where g++ would see one per member
  V value;
  emulator::load_bytes(&value, from, sizeof(V));
  return value;
#else
  return *static_cast<const V*>(from);
#endif
}
template <typename V>
__forceinline__ void store_vector(void* to, V value, Where where) {
  emulator::check_alignment("a vector store", to, sizeof(V), where);
#if defined(__SANITIZE_THREAD__)
  emulator::store_bytes(to, &value, sizeof(V));
#else
  *static_cast<V*>(to) = value;
#endif
}
inline uint2 load8(const void* from, Where where = Where::current()) {
  return load_vector<uint2>(from, where);
}
inline uint4 load16(const void* from, Where where = Where::current()) {
  return load_vector<uint4>(from, where);
}
inline uint4 load16_once(const void* from, Where where = Where::current()) {
  emulator::check_global("load16_once", from, 16, where);
  emulator::note_read_only(from, 16);
  return load_vector<uint4>(from, where);
}
inline void prefetch(const void* from, Where where = Where::current()) {
  emulator::check_global("prefetch", from, 1, where);
}
inline void store8(void* to, uint2 value, Where where = Where::current()) {
  store_vector(to, value, where);
}
inline void store16(void* to, uint4 value, Where where = Where::current()) {
  store_vector(to, value, where);
}

// Barriers

inline void sync_block(Where where = Where::current()) {
  emulator::sync_block(false, "sync_block", where);
}
inline int sync_block_count(bool vote, Where where = Where::current()) {
  return static_cast<int>(emulator::sync_block(vote, "sync_block_count", where));
}
inline bool sync_block_any(bool vote, Where where = Where::current()) {
  return emulator::sync_block(vote, "sync_block_any", where) > 0;
}
inline void barrier_sync(int barrier, int threads, Where where = Where::current()) {
  emulator::sync_barrier(barrier, threads, where);
}

// Early starts

inline void wait_for_previous_kernel(Where where = Where::current()) {
  emulator::wait_for_previous_kernel(where);
}
inline void let_next_kernel_start() { emulator::let_next_kernel_start(); }
inline void start_next_and_wait(Where where = Where::current()) {
  let_next_kernel_start();
  wait_for_previous_kernel(where);
}

// Warps

/// What a lane gives to a collective that takes another lane's value.
template <typename T>
struct LaneValue {
  T value;
  int from;
};

/// Lane l gets the value of the lane it names; to take from a lane outside of the mask is no number
/// at all on a card.
template <typename T>
void exchange_action(std::uint32_t mask, const emulator::LaneSlots& lanes) {
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const auto& lane = lanes[static_cast<std::size_t>(std::countr_zero(left))];
    const int from = static_cast<const LaneValue<T>*>(lane.in)->from;
    if ((mask >> from & 1U) == 0) {
      std::fill_n(static_cast<unsigned char*>(lane.out), sizeof(T), 0xff);
    } else {
      const auto& source = lanes[static_cast<std::size_t>(from)];
      *static_cast<T*>(lane.out) = static_cast<const LaneValue<T>*>(source.in)->value;
    }
  }
}
template <typename T>
T exchange(const char* name, T value, int from, unsigned mask, Where where) {
  const LaneValue<T> in{value, from};
  T out;
  emulator::meet({name, exchange_action<T>}, mask, &in, &out, where);
  return out;
}
inline int own_lane() { return static_cast<int>(emulator::current_thread->lane); }

/// `lane` if it is in the segment of `width` lanes that this lane is in, else this lane.
inline int lane_in_segment(int lane, int width) {
  return lane / width == own_lane() / width && lane >= 0 ? lane : own_lane();
}

inline void sync_warp(unsigned mask = full_warp, Where where = Where::current()) {
  emulator::sync_warp(mask, where);
}
template <typename T>
T shuffle(T value, int lane, unsigned mask = full_warp, int width = 32,
          Where where = Where::current()) {
  return exchange("shuffle", value, own_lane() / width * width + (lane & (width - 1)), mask, where);
}
template <typename T>
T shuffle_xor(T value, int bits, unsigned mask = full_warp, int width = 32,
              Where where = Where::current()) {
  const int from = own_lane() ^ bits;
  const bool reaches_up = from / width > own_lane() / width;
  return exchange("shuffle_xor", value, reaches_up ? own_lane() : from, mask, where);
}
template <typename T>
T shuffle_up(T value, unsigned distance, unsigned mask = full_warp, int width = 32,
             Where where = Where::current()) {
  return exchange("shuffle_up", value,
                  lane_in_segment(own_lane() - static_cast<int>(distance), width), mask, where);
}

/// A collective in which every lane gets the same number, made from those of all.
template <typename Fold>
void fold_action(std::uint32_t mask, const emulator::LaneSlots& lanes) {
  unsigned result = Fold::start;
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const auto value = *static_cast<const unsigned*>(lanes[static_cast<std::size_t>(lane)].in);
    result = Fold::step(result, value, lane);
  }
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(left));
    *static_cast<unsigned*>(lanes[lane].out) = result;
  }
}
template <typename Fold>
unsigned fold(const char* name, unsigned value, unsigned mask, Where where) {
  unsigned out = 0;
  emulator::meet({name, fold_action<Fold>}, mask, &value, &out, where);
  return out;
}
struct FoldBallot {
  static constexpr unsigned start = 0;
  static unsigned step(unsigned all, unsigned vote, int lane) { return all | vote << lane; }
};
struct FoldAdd {
  static constexpr unsigned start = 0;
  static unsigned step(unsigned all, unsigned value, int) { return all + value; }
};
struct FoldMin {
  static constexpr unsigned start = 0xffffffffU;
  static unsigned step(unsigned all, unsigned value, int) { return std::min(all, value); }
};
struct FoldMax {
  static constexpr unsigned start = 0;
  static unsigned step(unsigned all, unsigned value, int) { return std::max(all, value); }
};

inline unsigned ballot(bool vote, unsigned mask = full_warp, Where where = Where::current()) {
  return fold<FoldBallot>("ballot", vote ? 1 : 0, mask, where);
}
inline bool any_lane(bool vote, unsigned mask = full_warp, Where where = Where::current()) {
  return fold<FoldBallot>("any_lane", vote ? 1 : 0, mask, where) != 0;
}
inline unsigned reduce_add(unsigned value, unsigned mask = full_warp,
                           Where where = Where::current()) {
  return fold<FoldAdd>("reduce_add", value, mask, where);
}
inline unsigned reduce_min(unsigned value, unsigned mask = full_warp,
                           Where where = Where::current()) {
  return fold<FoldMin>("reduce_min", value, mask, where);
}
inline unsigned reduce_max(unsigned value, unsigned mask = full_warp,
                           Where where = Where::current()) {
  return fold<FoldMax>("reduce_max", value, mask, where);
}
inline unsigned match_any(unsigned value, unsigned mask = full_warp,
                          Where where = Where::current()) {
  const auto action = [](std::uint32_t all, const emulator::LaneSlots& lanes) {
    for (unsigned i = 0; i < 32; ++i) {
      if ((all >> i & 1U) == 0) continue;
      unsigned equal = 0;
      for (unsigned j = 0; j < 32; ++j) {
        if ((all >> j & 1U) != 0 && *static_cast<const unsigned*>(lanes[i].in) ==
                                        *static_cast<const unsigned*>(lanes[j].in)) {
          equal |= 1U << j;
        }
      }
      *static_cast<unsigned*>(lanes[i].out) = equal;
    }
  };
  unsigned out = 0;
  emulator::meet({"match_any", action}, mask, &value, &out, where);
  return out;
}

// Asynchronous copies

inline void cp_async16(void* to, const void* from, bool is_there = true,
                       Where where = Where::current()) {
  emulator::copy_async(to, from, 16, is_there, where);
}
template <int Bytes>
void cp_async(void* to, const void* from, bool is_there = true, Where where = Where::current()) {
  static_assert(Bytes == 4 || Bytes == 8);
  emulator::copy_async(to, from, Bytes, is_there, where);
}
inline void cp_async_commit() { emulator::current_thread->copies.commit(); }
template <int Pending>
void cp_async_wait() {
  emulator::current_thread->copies.wait(Pending);
}

// Matrix instructions

template <bool Transposed>
void ldmatrix(std::uint32_t (&d)[4], const void* row, Where where) {
  emulator::check_alignment("ldmatrix", row, 16, where);
  emulator::check_shared("ldmatrix", row, 16, where);
  emulator::note_access(row, 16, emulator::Access::read);
  emulator::meet({"ldmatrix", emulator::ldmatrix_action<Transposed>, true}, full_warp, &row, d,
                 where);
}
inline void ldmatrix_x4(std::uint32_t (&d)[4], const void* row, Where where = Where::current()) {
  ldmatrix<false>(d, row, where);
}
inline void ldmatrix_x4_transposed(std::uint32_t (&d)[4], const void* row,
                                   Where where = Where::current()) {
  ldmatrix<true>(d, row, where);
}

inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                     Where where = Where::current()) {
  const emulator::MmaOperands in{
      .a = {a[0], a[1], a[2], a[3]}, .b = {b0, b1}, .d = {d[0], d[1], d[2], d[3]}};
  emulator::meet({"mma_bf16", emulator::mma_bf16_action, true}, full_warp, &in, d, where);
}

// Between blocks

template <typename T>
T atomic_add(T* at, T value) {
  return std::atomic_ref<T>(*at).fetch_add(value, std::memory_order_relaxed);
}
template <typename T>
T atomic_or(T* at, T value) {
  return std::atomic_ref<T>(*at).fetch_or(value, std::memory_order_relaxed);
}
inline void fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// Numbers

inline float exp_fast(float x) {
  return emulator::off_by(std::exp(x), 2.0F + 1.173F * std::fabs(x));
}
inline float exp2_fast(float x) { return emulator::off_by(std::exp2(x), 2.0F); }
inline float divide_fast(float a, float b) {
  return std::fabs(b) > 0x1p126F ? 0.0F * a : emulator::off_by(a / b, 2.0F);
}
inline void sine_cosine_of_turns(float turns, float& sine, float& cosine) {
  const double angle = 6.283185307179586477 * turns;
  sine = static_cast<float>(std::sin(angle));
  cosine = static_cast<float>(std::cos(angle));
}
inline float product_rounded(float a, float b) { return a * b; }
inline std::uint32_t pack_bf16(float low, float high) {
  return to_bf16(low).bits | static_cast<std::uint32_t>(to_bf16(high).bits) << 16;
}
inline int hidden(int number) { return number; }
inline std::uint32_t permute_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint64_t both = a | static_cast<std::uint64_t>(b) << 32;
  std::uint64_t bytes = 0;
  for (int i = 0; i < 4; ++i) bytes |= (both >> 8 * (selector >> 4 * i & 7U) & 0xffU) << 8 * i;
  return static_cast<std::uint32_t>(bytes);
}
template <int First>
std::uint32_t extend_bytes(std::uint32_t bytes) {
  static_assert(First == 0 || First == 2);
  const auto half = [&](int i) {
    return static_cast<std::uint16_t>(static_cast<std::int8_t>(bytes >> 8 * i & 0xffU));
  };
  return half(First) | static_cast<std::uint32_t>(half(First + 1)) << 16;
}
inline std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
  const auto number = [](std::uint32_t pair) -> double {  // the host may flush denormals
    const double denormal = (pair & 0x7fU) * ((pair & 0x8000U) != 0 ? -0x1p-133 : 0x1p-133);
    return (pair & 0x7f80U) == 0 ? denormal : std::bit_cast<float>(pair << 16);
  };
  return pack_bf16(static_cast<float>(number(a) * number(b)),
                   static_cast<float>(number(a >> 16) * number(b >> 16)));
}
inline float half_to_float(std::uint32_t bits) {
  return to_float(f16{static_cast<std::uint16_t>(bits)});
}
inline std::uint32_t multiply_add_pairs(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto number = [](std::uint32_t half) { return std::bit_cast<float>(half << 16); };
  const auto sum = [&](int shift) {  // of 8 bits each: exact in f32 but for the last rounding
    return number(a >> shift) * number(b >> shift) + number(c >> shift);
  };
  return pack_bf16(sum(0), sum(16));
}
inline bf16 round_bf16(float value) { return to_bf16(value); }

}  // namespace hyb::kernels::cuda
