#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/semaphore.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/logit_row.h"
#include "kernels/ops/sampler.h"

/// The passes over a row of logits that sampling consists of. Weights are summed as whole numbers,
/// so that sums are exact, and the same in every order and over any number of blocks.
namespace hyb::kernels::cuda {

constexpr int sample_warps = 16;
constexpr int sample_threads = sample_warps * warp_size;
constexpr int logit_batch = 16;  ///< of a thread, on their way together
constexpr int logits_together = sample_threads * logit_batch;

using Sums = SampleSums;
using Candidate = SampleCandidate;
constexpr int candidates_max = sample_candidates_max;

/// Counts and masses of bins, from the likeliest on.
struct Histogram {
  SharedArray<unsigned, sample_bins> counts, low, high;  ///< mass: high * 2^32 + low

  __device__ Mass mass(int bin) const { return static_cast<Mass>(high[bin]) << 32 | low[bin]; }

  __device__ void clear() {
    for (int i = static_cast<int>(threadIdx.x); i < sample_bins; i += sample_threads) {
      counts[i] = low[i] = high[i] = 0;
    }
    sync_block();
  }
  __device__ void add(int bin, Mass mass) {
    atomic_add(&counts[bin], 1U);
    const auto part = static_cast<unsigned>(mass);
    if (mass == 0) return;
    const bool carries = atomic_add(&low[bin], part) + part < part;
    const unsigned upper = static_cast<unsigned>(mass >> 32) + (carries ? 1U : 0U);
    if (upper != 0) atomic_add(&high[bin], upper);
  }
};

__device__ __forceinline__ Sums operator+(const Sums& a, const Sums& b) {
  return {a.count + b.count, a.mass + b.mass};
}

struct Found {
  int bin;
  Sums before;
};

/// The logits of bins 0 .. through, in any order: what searches look at instead of the whole row.
struct Candidates {
  int through = -1, count = 0;
  bool are_all_counted = true;  ///< false: what is in later bins is counted in the last one
};

struct SampleShared {
  Histogram by_distance, by_key;
  SharedArray<Candidate, candidates_max> candidates;
  SharedArray<Candidates, 1> held;
  SharedArray<Sums, sample_warps> sums;
  SharedArray<Mass, sample_warps> masses;
  SharedArray<Found, 1> found;
  SharedArray<int, 1> id, taken, is_last;
  SharedArray<Mass, 32> list;
};
static_assert(sizeof(SampleShared) <= 99 << 10);  // what every card gives to a block

__device__ __forceinline__ int sample_lane() { return static_cast<int>(threadIdx.x) % warp_size; }
__device__ __forceinline__ int sample_warp() { return static_cast<int>(threadIdx.x) / warp_size; }

__device__ __forceinline__ Mass warp_total(Mass value) {
  for (int bits = warp_size / 2; bits > 0; bits /= 2) value += shuffle_xor(value, bits);
  return value;
}
/// The sum of the lanes up to this one.
__device__ __forceinline__ Mass warp_running(Mass value) {
  for (unsigned distance = 1; distance < warp_size; distance *= 2) {
    const Mass other = shuffle_up(value, distance);
    if (sample_lane() >= static_cast<int>(distance)) value += other;
  }
  return value;
}

/// To all threads.
__device__ __forceinline__ Mass block_total(SampleShared& shared, Mass value) {
  value = warp_total(value);
  sync_block();
  if (sample_lane() == 0) shared.masses[sample_warp()] = value;
  sync_block();
  Mass total = 0;
  for (int w = 0; w < sample_warps; ++w) total += shared.masses[w];
  return total;
}

/// Sums the values of a block, in pairs of a warp, then of warps one after the other.
__device__ __forceinline__ double block_total(SampleShared& shared, double value) {
  for (int bits = warp_size / 2; bits > 0; bits /= 2) value += shuffle_xor(value, bits);
  sync_block();
  if (sample_lane() == 0) shared.masses[sample_warp()] = std::bit_cast<Mass>(value);
  sync_block();
  double total = 0.0;
  for (int w = 0; w < sample_warps; ++w) total += std::bit_cast<double>(shared.masses[w]);
  return total;
}

/// Calls body(id, logit) for every logit of begin .. end-1, distributed to `threads` threads of
/// which this is number `thread`. Several loads are on their way before the first body.
template <typename Body>
__device__ __forceinline__ void each_logit(const LogitRow& row, int begin, int end, int thread,
                                           int threads, Body&& body) {
  constexpr int batch = logit_batch;
  for (int first = begin + thread; first < end; first += batch * threads) {
    float values[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      values[i] = first + i * threads < end ? row.at(first + i * threads) : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (first + i * threads < end) body(first + i * threads, values[i]);
    }
  }
}
template <typename Body>
__device__ __forceinline__ void each_logit(const LogitRow& row, Body&& body) {
  each_logit(row, 0, row.count, static_cast<int>(threadIdx.x), sample_threads, body);
}

/// The logits of block `part` of `parts`, which take them in turns: so each has its share of the
/// likeliest, of which many have low ids.
template <typename Body>
__device__ __forceinline__ void each_in_turns(const LogitRow& row, int part, int parts,
                                              Body&& body) {
  each_logit(row, 0, row.count, part * sample_threads + static_cast<int>(threadIdx.x),
             parts * sample_threads, body);
}

struct Largest {
  float value;
  int id;
  bool is_finite;
};

/// The rank of the first of the largest of logits begin .. end-1, and its id; 0 where one is NaN.
__device__ __forceinline__ Mass find_first(SampleShared& shared, const LogitRow& row, int begin,
                                           int end) {
  Mass best = ~Mass{0};
  each_logit(row, begin, end, static_cast<int>(threadIdx.x), sample_threads,
             [&](int id, float logit) {
               const Mass key = static_cast<Mass>(rank_key(logit)) << 32;
               const Mass own = std::isnan(logit) ? 0 : key | static_cast<unsigned>(id);
               best = own < best ? own : best;
             });
  for (int bits = warp_size / 2; bits > 0; bits /= 2) {
    const Mass other = shuffle_xor(best, bits);
    best = other < best ? other : best;
  }
  sync_block();
  if (sample_lane() == 0) shared.masses[sample_warp()] = best;
  sync_block();
  for (int w = 0; w < sample_warps; ++w) {
    best = shared.masses[w] < best ? shared.masses[w] : best;
  }
  return best;
}

/// Returns what find_first found in a whole row.
__device__ __forceinline__ Largest largest_of(Mass first) {
  const float value = first == 0 ? NAN : logit_of_key(static_cast<unsigned>(first >> 32));
  return {value, static_cast<int>(first & 0xffffffffU), std::isfinite(value)};
}

/// The bin in which the running count (or mass) reaches `need`, which is at least 1 and at most the
/// whole.
__device__ __forceinline__ Found find_bin(SampleShared& shared, const Histogram& histogram,
                                          bool by_mass, Mass need) {
  constexpr int own_bins = sample_bins / sample_warps;
  Sums own;
  for (int i = sample_lane(); i < own_bins; i += warp_size) {
    const int bin = sample_warp() * own_bins + i;
    own = own + Sums{histogram.counts[bin], histogram.mass(bin)};
  }
  own = {warp_total(own.count), warp_total(own.mass)};
  sync_block();
  if (sample_lane() == 0) shared.sums[sample_warp()] = own;
  sync_block();
  if (sample_warp() == 0) {
    int warp = 0;
    Sums before;
    while (warp + 1 < sample_warps) {
      const Sums through = before + shared.sums[warp];
      if ((by_mass ? through.mass : through.count) >= need) break;
      before = through;
      ++warp;
    }
    bool is_found = false;
    for (int first = 0; first < own_bins && !is_found; first += warp_size) {
      const int bin = warp * own_bins + first + sample_lane();
      const Sums value{histogram.counts[bin], histogram.mass(bin)};
      const Sums through = before + Sums{warp_running(value.count), warp_running(value.mass)};
      const unsigned reached = ballot((by_mass ? through.mass : through.count) >= need);
      is_found = reached != 0;
      const int lane = is_found ? std::countr_zero(reached) : warp_size - 1;
      if (is_found && sample_lane() == lane) {
        shared.found[0] = {bin, {through.count - value.count, through.mass - value.mass}};
      }
      before = {shuffle(through.count, lane), shuffle(through.mass, lane)};
    }
  }
  sync_block();
  return shared.found[0];
}

/// The id of begin .. end-1 at which `before` and the running sum of value(id, logit) reach `need`.
template <typename Value>
__device__ __forceinline__ int find_id_between(SampleShared& shared, const LogitRow& row, int begin,
                                               int end, Mass before, Mass need, Value&& value) {
  sync_block();
  if (sample_warp() == 0) {
    bool is_found = false;
    for (int first = begin; first < end && !is_found; first += warp_size) {
      const int id = first + sample_lane();
      const Mass through = before + warp_running(id < end ? value(id, row.at(id)) : 0);
      const unsigned reached = ballot(through >= need);
      is_found = reached != 0;
      if (is_found && sample_lane() == std::countr_zero(reached)) shared.id[0] = id;
      before = shuffle(through, warp_size - 1);
    }
  }
  sync_block();
  return shared.id[0];
}

/// Does what find_id_between() does, with all warps.
template <typename Value>
__device__ __forceinline__ int find_id(SampleShared& shared, const LogitRow& row, int begin,
                                       int end, Mass before, Mass need, Value&& value) {
  while (end - begin > sample_threads) {
    const int part = (end - begin + sample_warps - 1) / sample_warps;
    const int first = begin + sample_warp() * part;
    const int last = first + part < end ? first + part : end;
    Mass sum = 0;
    each_logit(row, first, last, sample_lane(), warp_size,
               [&](int id, float logit) { sum += value(id, logit); });
    sum = warp_total(sum);
    sync_block();
    if (sample_lane() == 0) shared.masses[sample_warp()] = sum;
    sync_block();
    int warp = 0;
    while (warp + 1 < sample_warps && before + shared.masses[warp] < need) {
      before += shared.masses[warp++];
    }
    const int old_begin = begin;
    begin = old_begin + warp * part;
    end = begin + part < end ? begin + part : end;
  }
  return find_id_between(shared, row, begin, end, before, need, value);
}
/// Finds the id in the whole row.
template <typename Value>
__device__ __forceinline__ int find_id(SampleShared& shared, const LogitRow& row, Mass need,
                                       Value&& value) {
  return find_id(shared, row, 0, row.count, 0, need, value);
}

/// body(id, logit) for all candidates, or for all logits where there are none.
template <typename Body>
__device__ __forceinline__ void each_candidate(const SampleShared& shared, const LogitRow& row,
                                               Body&& body) {
  const Candidates held = shared.held[0];
  if (held.through < 0) return each_logit(row, body);
  for (int i = static_cast<int>(threadIdx.x); i < held.count; i += sample_threads) {
    body(shared.candidates[i].id, shared.candidates[i].logit);
  }
}

/// Makes candidates of the logits down to bin `through`, if `count` fit.
__device__ __forceinline__ void collect(SampleShared& shared, const LogitRow& row, int through,
                                        Mass count) {
  const Candidates held = shared.held[0];
  if (through <= held.through) return;
  const bool fits = count <= candidates_max;
  sync_block();
  if (threadIdx.x == 0) {
    shared.taken[0] = 0;
    shared.held[0] = {fits ? through : -1, fits ? static_cast<int>(count) : 0};
  }
  sync_block();
  if (!fits) return;
  each_logit(row, [&](int id, float logit) {
    if (row.is_out(logit) || row.bin(logit) > through) return;
    shared.candidates[atomic_add(&shared.taken[0], 1)] = {logit, id};
  });
  sync_block();
}

/// Counts and masses by distance from the largest, of the logits of block `part` of `parts`,
/// as each_in_turns has them; what is out is nowhere. Returns the sums of both. What
/// was collected before is forgotten.
__device__ __forceinline__ Sums count_distances(SampleShared& shared, const LogitRow& row,
                                                int part = 0, int parts = 1) {
  Histogram& histogram = shared.by_distance;
  if (threadIdx.x == 0) shared.held[0] = {};
  histogram.clear();
  Mass alive = 0, mass = 0;
  each_in_turns(row, part, parts, [&](int, float logit) {
    if (row.is_out(logit)) return;
    ++alive;
    const int bin = row.bin(logit);
    if (bin == sample_bins - 1) return;  // far too many to count one by one
    const Mass own = row.mass(logit);
    mass += own;
    histogram.add(bin, own);
  });
  const Sums all{block_total(shared, alive), block_total(shared, mass)};
  Mass near = 0;
  for (int i = static_cast<int>(threadIdx.x); i < sample_bins - 1; i += sample_threads) {
    near += histogram.counts[i];
  }
  near = block_total(shared, near);
  if (threadIdx.x == 0) histogram.counts[sample_bins - 1] = static_cast<unsigned>(all.count - near);
  sync_block();
  return all;
}

/// Says where a search ended: among `equals` logits with this key, of which `wanted` are in.
struct Place {
  unsigned key;
  Mass wanted, equals, each;  ///< each: one's mass
  Sums before;                ///< of all likelier ones
};

/// The fewest likeliest logits whose count (or mass) reaches `need`. By distance, then by the bits
/// of the key. After count_distances. The likeliest down to the place become candidates.
__device__ __forceinline__ Place find_place(SampleShared& shared, const LogitRow& row, bool by_mass,
                                            Mass need) {
  Found near = find_bin(shared, shared.by_distance, by_mass, need);
  const Candidates held = shared.held[0];
  if (!held.are_all_counted && near.bin > held.through) {
    sync_block();
    count_distances(shared, row);
    near = find_bin(shared, shared.by_distance, by_mass, need);
  }
  Sums before = near.before;
  collect(shared, row, near.bin, before.count + shared.by_distance.counts[near.bin]);
  unsigned key = 0;
  Found found = near;
#pragma unroll 1
  for (int level = 0; level < 3; ++level) {
    const int shift = level == 0 ? 21 : level == 1 ? 10 : 0, bits = level == 2 ? 10 : 11;
    shared.by_key.clear();
    each_candidate(shared, row, [&](int, float logit) {
      if (row.is_out(logit) || row.bin(logit) != near.bin) return;
      const unsigned own = rank_key(logit);
      if (level > 0 && own >> (shift + bits) != key) return;
      shared.by_key.add(static_cast<int>(own >> shift & ((1U << bits) - 1)), row.mass(logit));
    });
    sync_block();
    found = find_bin(shared, shared.by_key, by_mass, need - (by_mass ? before.mass : before.count));
    key = key << bits | static_cast<unsigned>(found.bin);
    before = before + found.before;
  }
  const Mass equals = shared.by_key.counts[found.bin];
  const Mass each = shared.by_key.mass(found.bin) / equals;
  const Mass wanted = by_mass ? (need - before.mass + each - 1) / each : need - before.count;
  sync_block();
  return {.key = key, .wanted = wanted, .equals = equals, .each = each, .before = before};
}

/// Works as find_id, where only candidates have a value: by neighbouring ids first.
template <typename Value>
__device__ __forceinline__ int find_candidate(SampleShared& shared, const LogitRow& row, Mass need,
                                              Value&& value) {
  const int neighbours = (row.count + sample_bins - 1) / sample_bins;
  shared.by_key.clear();
  each_candidate(shared, row, [&](int id, float logit) {
    const Mass own = value(id, logit);
    if (own != 0) shared.by_key.add(id / neighbours, own);
  });
  sync_block();
  const Found found = find_bin(shared, shared.by_key, true, need);
  const int begin = found.bin * neighbours, end = begin + neighbours;
  return find_id_between(shared, row, begin, end < row.count ? end : row.count, found.before.mass,
                         need, value);
}

/// The id of the last of a place's wanted ones.
__device__ __forceinline__ int find_last(SampleShared& shared, const LogitRow& row,
                                         const Place& place) {
  if (place.equals == 1) {
    each_candidate(shared, row, [&](int id, float logit) {
      if (rank_key(logit) == place.key) shared.id[0] = id;
    });
    sync_block();
    return shared.id[0];
  }
  return find_id(shared, row, place.wanted,
                 [&](int, float logit) { return Mass{rank_key(logit) == place.key ? 1U : 0U}; });
}

__device__ __forceinline__ Cut cut_at(SampleShared& shared, const LogitRow& row,
                                      const Place& place) {
  if (place.wanted >= place.equals) return {.key = place.key};
  return {.key = place.key, .id = find_last(shared, row, place)};
}

namespace {

struct Params {
  float* logits;
  std::int64_t stride;
  int vocab_used;
  SampleTables tables;
};

__device__ __forceinline__ int part_index() { return static_cast<int>(blockIdx.y); }
__device__ __forceinline__ int part_count() { return static_cast<int>(gridDim.y); }
/// Returns where a part of neighbours begins, and the one before it ends.
__device__ __forceinline__ int part_begin(const LogitRow& row, int part) {
  return static_cast<int>(static_cast<std::int64_t>(part) * row.count / part_count());
}

/// Works as adjust_logits, to the bit, those of begin .. end-1: products are rounded before
/// anything is subtracted.
__device__ __forceinline__ void adjust(const SampleJob& job, float* logits, int begin, int end) {
  for (int i = static_cast<int>(threadIdx.x); i < job.adjustments; i += sample_threads) {
    const TokenAdjustment& own = job.adjustment[i];
    if (own.token < begin || own.token >= end) continue;
    float logit = logits[own.token];
    job.saved[i] = logit;
    if (own.is_penalized) {
      logit = logit > 0.0F ? logit / job.by.repetition_penalty
                           : product_rounded(logit, job.by.repetition_penalty);
      logit -= own.penalty;
    }
    logits[own.token] = own.is_banned ? -INFINITY : logit + own.bias;
  }
  sync_block();
}

/// Takes the adjustments of all blocks back.
__device__ __forceinline__ void restore(const SampleJob& job, float* logits) {
  if (job.adjustments == 0) return;
  sync_block();
  for (int i = static_cast<int>(threadIdx.x); i < job.adjustments; i += sample_threads) {
    logits[job.adjustment[i].token] = job.saved[i];
  }
  sync_block();
}

__device__ __forceinline__ float logprob_of(float logit, double log_sum) {
  return static_cast<float>(static_cast<double>(logit) - log_sum);
}

/// The likeliest of the raw logits, and what all logits are above their logprobs by.
__device__ double find_logprobs(SampleShared& shared, const LogitRow& row, int wanted,
                                SampledToken& out) {
  const Sums all = count_distances(shared, row);
  const double log_sum = static_cast<double>(row.largest) +
                         log(static_cast<double>(all.mass) / static_cast<double>(mass_of_one));
  const auto count = static_cast<int>(all.count < static_cast<Mass>(wanted) ? all.count : wanted);
  if (count > 0) {
    const Cut cut = cut_at(shared, row, find_place(shared, row, false, static_cast<Mass>(count)));
    if (threadIdx.x == 0) shared.taken[0] = 0;
    sync_block();
    each_candidate(shared, row, [&](int id, float logit) {
      const unsigned key = rank_key(logit);
      if (logit == -INFINITY || !cut.has(key, id)) return;
      shared.list[atomic_add(&shared.taken[0], 1)] =
          static_cast<Mass>(key) << 32 | static_cast<unsigned>(id);
    });
    sync_block();
    const auto own = static_cast<int>(threadIdx.x);
    if (own < count) {
      std::size_t rank = 0;
      for (int i = 0; i < count; ++i) rank += shared.list[i] < shared.list[own] ? 1 : 0;
      const auto id = static_cast<int>(shared.list[own] & 0xffffffffU);
      out.top.tokens[rank] = {TokenId{id}, logprob_of(row.logits[id], log_sum)};
    }
  }
  if (threadIdx.x == 0) out.top.count = count;
  sync_block();  // all have read the logits, which may change now
  return log_sum;
}

/// The place of a uniform number in a sum: at least 1, at most all of it.
__device__ __forceinline__ Mass part_of(double share, Mass mass, bool round_up) {
  const double part = share * static_cast<double>(mass);
  const Mass need = static_cast<Mass>(round_up ? ceil(part) : part) + (round_up ? 0 : 1);
  if (need < 1) return 1;
  return need < mass ? need : mass;
}

/// Returns what top_k and top_p leave of the row, and its mass. After count_distances, with what it
/// counted in the whole row.
__device__ Cut cut_row(SampleShared& shared, const LogitRow& row, const SampleJob& job,
                       const Sums& all, Mass& kept) {
  kept = all.mass;
  Place last{.key = 0xffffffffU, .wanted = 1, .equals = 1, .each = 0, .before = {}};
  if (job.by.top_k > 0 && static_cast<Mass>(job.by.top_k) < all.count) {
    last = find_place(shared, row, false, static_cast<Mass>(job.by.top_k));
    kept = last.before.mass + last.wanted * last.each;
  }
  if (job.by.top_p < 1.0F) {
    last = find_place(shared, row, true, part_of(static_cast<double>(job.by.top_p), kept, true));
    kept = last.before.mass + last.wanted * last.each;
  }
  return cut_at(shared, row, last);
}

/// Counts this block's part of the row, and leaves the likeliest ones for the last block.
__device__ void leave_likeliest(SampleShared& shared, const LogitRow& row, SampleParts& found,
                                Candidate* room, int room_each) {
  const int part = part_index(), parts = part_count();
  const Sums all = count_distances(shared, row, part, parts);
  int through = sample_bins - 1;
  if (all.count > static_cast<Mass>(room_each)) {
    through = find_bin(shared, shared.by_distance, false, static_cast<Mass>(room_each) + 1).bin - 1;
  }
  if (threadIdx.x == 0) shared.taken[0] = 0;
  sync_block();
  each_in_turns(row, part, parts, [&](int id, float logit) {
    if (row.is_out(logit) || row.bin(logit) > through) return;
    room[part * room_each + atomic_add(&shared.taken[0], 1)] = {logit, id};
  });
  sync_block();
  if (threadIdx.x != 0) return;
  found.sums[part] = all;
  found.through[part] = through;
  found.candidates[part] = shared.taken[0];
}

/// Works as count_distances of the whole row, from what all blocks have left: candidates down to
/// the bin to which each of them has all.
__device__ Sums take_likeliest(SampleShared& shared, const LogitRow& row, const SampleParts& found,
                               const Candidate* room, int room_each) {
  constexpr int batch = candidates_max / sample_threads;
  Candidate values[batch];
#pragma unroll
  for (int i = 0; i < batch; ++i) {
    const int place = i * sample_threads + static_cast<int>(threadIdx.x), part = place / room_each;
    const bool is_there = part < part_count() && place % room_each < found.candidates[part];
    values[i] = is_there ? room[place] : Candidate{-INFINITY, 0};
  }
  Sums all;
  int through = sample_bins - 1;
  for (int part = 0; part < part_count(); ++part) {
    all = all + found.sums[part];
    through = found.through[part] < through ? found.through[part] : through;
  }
  Histogram& histogram = shared.by_distance;
  if (threadIdx.x == 0) shared.taken[0] = 0;
  histogram.clear();
  Mass near = 0;
#pragma unroll
  for (int i = 0; i < batch; ++i) {
    const int bin = row.bin(values[i].logit);
    if (values[i].logit == -INFINITY || bin > through) continue;
    shared.candidates[atomic_add(&shared.taken[0], 1)] = values[i];
    const Mass own = row.mass(values[i].logit);
    near += own;
    histogram.add(bin, own);
  }
  const Mass rest = all.mass - block_total(shared, near);
  if (threadIdx.x == 0) {
    const int count = shared.taken[0];
    shared.held[0] = {through, count, false};
    histogram.counts[sample_bins - 1] +=
        static_cast<unsigned>(all.count - static_cast<Mass>(count));
    histogram.low[sample_bins - 1] += static_cast<unsigned>(rest);
    histogram.high[sample_bins - 1] += static_cast<unsigned>(rest >> 32);
  }
  sync_block();
  return all;
}

/// Is called by the last block of the row, after count_distances. Rows that top_k cuts are drawn
/// from in the order of likelihood, others in that of ids.
__device__ int draw_of_cut(SampleShared& shared, const LogitRow& row, const SampleJob& job,
                           const Sums& all) {
  Mass kept = 0;
  const Cut cut = cut_row(shared, row, job, all, kept);
  const auto mass_of = [&](int id, float logit) {
    const bool is_in = !row.is_out(logit) && cut.has(rank_key(logit), id);
    return is_in && row.weight(logit) >= job.by.min_p ? row.mass(logit) : Mass{0};
  };
  if (job.by.min_p > 0.0F) {
    Mass own = 0;
    each_candidate(shared, row, [&](int id, float logit) { own += mass_of(id, logit); });
    kept = block_total(shared, own);
  }
  const Mass need = part_of(job.draw, kept, false);
  if (job.by.top_k > 0 && job.by.top_k < row.count) {
    return find_last(shared, row, find_place(shared, row, true, need));
  }
  if (shared.held[0].through < 0) return find_id(shared, row, need, mass_of);
  return find_candidate(shared, row, need, mass_of);
}

/// Works as the plain loop, to the bit, in each block of the row: one alone would take as long.
__device__ float least_logit(SampleShared& shared, const LogitRow& row, float sigmas) {
  static_assert(sample_threads == 512 && warp_size == 32, "as the plain loop adds");
  double sum = 0.0, squares = 0.0;
  Mass own = 0;
  each_logit(row, [&](int, float logit) {
    if (logit == -INFINITY) return;
    const double below = static_cast<double>(row.largest - logit);
    sum += below;
    squares += below * below;
    ++own;
  });
  const auto count = static_cast<double>(block_total(shared, own));
  const double mean = block_total(shared, sum) / count;
  const double variance = fma(-mean, mean, block_total(shared, squares) / count);
  const double deviation = variance > 0.0 ? sqrt(variance) : 0.0;
  return static_cast<float>(
      fma(-static_cast<double>(sigmas), deviation, static_cast<double>(row.largest)));
}

/// True in the last of the row's blocks, which gets the token.
__device__ bool draw_together(const Params& p, SampleShared& shared, const LogitRow& row,
                              const SampleJob& job, int& token) {
  const int part = part_index(), parts = part_count();
  SampleParts& found = p.tables.parts[blockIdx.x];
  if ((job.by.top_k > 0 && job.by.top_k < row.count) || job.by.top_p < 1.0F) {
    Sums all;
    if (parts == 1) {
      all = count_distances(shared, row);
    } else {
      Candidate* const room = p.tables.candidates + blockIdx.x * candidates_max;
      const int room_each = candidates_max / parts;
      leave_likeliest(shared, row, found, room, room_each);
      if (!is_last_of(parts, &found.semaphore, shared.is_last)) return false;
      all = take_likeliest(shared, row, found, room, room_each);
    }
    token = draw_of_cut(shared, row, job, all);
    return true;
  }
  const auto mass_of = [&](int, float logit) {
    const bool is_in = !row.is_out(logit) && row.weight(logit) >= job.by.min_p;
    return is_in ? row.mass(logit) : Mass{0};
  };
  Mass own = 0;
  each_logit(row, part_begin(row, part), part_begin(row, part + 1), static_cast<int>(threadIdx.x),
             sample_threads, [&](int id, float logit) { own += mass_of(id, logit); });
  own = block_total(shared, own);
  if (threadIdx.x == 0) found.sums[part].mass = own;
  if (!is_last_of(parts, &found.semaphore, shared.is_last)) return false;
  Mass kept = 0, before = 0;
  for (int i = 0; i < parts; ++i) kept += found.sums[i].mass;
  const Mass need = part_of(job.draw, kept, false);
  int at = 0;
  while (at + 1 < parts && before + found.sums[at].mass < need) before += found.sums[at++].mass;
  token = find_id(shared, row, part_begin(row, at), part_begin(row, at + 1), before, need, mass_of);
  return true;
}

/// `token` is -1 where none could be chosen.
__device__ void answer(const Params& p, int token) {
  if (threadIdx.x != 0) return;
  SampledToken& out = p.tables.out[blockIdx.x];
  out.finite = token >= 0;
  out.token = TokenId{token};
  if (p.tables.tokens != nullptr) p.tables.tokens[blockIdx.x] = token;
}

/// The row's logits are as they were after this.
__device__ void finish(const Params& p, const SampleJob& job, const LogitRow& row, int token,
                       double log_sum) {
  restore(job, row.logits);
  answer(p, token);
  if (threadIdx.x != 0) return;
  SampledToken& out = p.tables.out[blockIdx.x];
  if (token < 0) {
    out.top.count = 0;
  } else if (job.by.logprobs >= 0) {
    out.logprob = logprob_of(row.logits[token], log_sum);
  }
}

/// Is called by the last of the row's blocks, which gets the ranks of the largest logit, before and
/// after adjustments; false to the others.
__device__ bool find_first_together(const Params& p, SampleShared& shared, const SampleJob& job,
                                    LogitRow row, Mass& first, Mass& adjusted) {
  const int part = part_index(), parts = part_count();
  const int begin = part_begin(row, part), end = part_begin(row, part + 1);
  first = adjusted = find_first(shared, row, begin, end);
  if (job.adjustments > 0 || job.mask != nullptr) {
    adjust(job, row.logits, begin, end);
    row.mask = job.mask;
    adjusted = find_first(shared, row, begin, end);
  }
  SampleParts& found = p.tables.parts[blockIdx.x];
  if (threadIdx.x == 0) {
    found.first[part] = first;
    found.adjusted[part] = adjusted;
  }
  if (!is_last_of(parts, &found.semaphore, shared.is_last)) return false;
  for (int i = 0; i < parts; ++i) {
    first = found.first[i] < first ? found.first[i] : first;
    adjusted = found.adjusted[i] < adjusted ? found.adjusted[i] : adjusted;
  }
  return true;
}

/// Sampling is two kernels, since weights are relative to the largest logit. The blocks of a row
/// look for it together, a part each; the last one of them that is done answers where nothing is
/// drawn, and leaves the adjusted logits for the next kernel where something is.
__global__ void __launch_bounds__(sample_threads, 1) sample_first_kernel(const Params p) {
  auto& shared = dynamic_shared<SampleShared>();
  start_next_and_wait();
  const SampleJob job = p.tables.jobs[blockIdx.x];
  if (!job.is_wanted) {
    if (part_index() == 0) answer(p, 0);
    return;
  }
  SampledToken& out = p.tables.out[blockIdx.x];
  LogitRow row{.logits = p.logits + blockIdx.x * p.stride, .count = p.vocab_used};
  Mass first = 0, adjusted = 0;
  if (!find_first_together(p, shared, job, row, first, adjusted)) return;
  if (threadIdx.x == 0) {
    out.logprob = 0.0F;
    out.top.count = 0;
  }
  Largest best = largest_of(first);
  double log_sum = 0.0;
  if (best.is_finite) {
    row.largest = best.value;
    if (job.by.logprobs >= 0) {
      restore(job, row.logits);
      log_sum = find_logprobs(shared, row, job.by.logprobs, out);
      adjust(job, row.logits, 0, row.count);
    }
    best = largest_of(adjusted);
  }
  const bool is_drawn = best.is_finite && job.by.temperature >= temperature_min;
  if (threadIdx.x == 0) {
    SampleParts& found = p.tables.parts[blockIdx.x];
    found.is_drawn = is_drawn;
    found.largest = best.value;
    found.log_sum = log_sum;
  }
  if (!is_drawn) finish(p, job, row, best.is_finite ? best.id : -1, log_sum);
}

/// The blocks of a row weigh a part of it each; the last one draws. Weights are f32, cut off at
/// 2^-44 of the largest, and summed exactly: the choice is the plain loop's but where its rounding
/// of a weight or of a sum puts a token on the other side of a threshold. The same in every run,
/// alone and among other rows.
__global__ void __launch_bounds__(sample_threads, 1) sample_draw_kernel(const Params p) {
  auto& shared = dynamic_shared<SampleShared>();
  start_next_and_wait();
  const SampleJob job = p.tables.jobs[blockIdx.x];
  const SampleParts& found = p.tables.parts[blockIdx.x];
  if (!job.is_wanted || !found.is_drawn) return;
  LogitRow row{.logits = p.logits + blockIdx.x * p.stride,
               .count = p.vocab_used,
               .largest = found.largest,
               .inverse_temperature = 1.0F / job.by.temperature,
               .mask = job.mask};
  if (job.by.top_n_sigma > 0.0F) row.least = least_logit(shared, row, job.by.top_n_sigma);
  int token = 0;
  if (!draw_together(p, shared, row, job, token)) return;
  finish(p, job, row, token, found.log_sum);
}

}  // namespace

void launch_sample(Stream& stream, const Tensor& logits, std::int32_t vocab_used,
                   const SampleTables& tables) {
  // A part is what the threads of a block read at a time; more blocks than processors gain nothing.
  const std::int64_t rows = logits.dim(0);
  const std::int64_t parts_max =
      rows > sample_split_rows_max
          ? 1
          : std::min<std::int64_t>(pieces(vocab_used, logits_together), SampleParts::count_max);
  const std::int64_t parts = std::clamp<std::int64_t>(stream.processors() / rows, 1, parts_max);
  for (const auto kernel : {sample_first_kernel, sample_draw_kernel}) {
    launch(stream,
           {.blocks = dim3(static_cast<unsigned>(rows), static_cast<unsigned>(parts)),
            .threads = sample_threads,
            .shared_bytes = sizeof(SampleShared)},
           kernel,
           {.logits = logits.as<float>(),
            .stride = logits.row_stride,
            .vocab_used = vocab_used,
            .tables = tables});
  }
}

void sample(Stream& stream, const Sample& op) {
  if (!op.rows.empty()) stream.sampler().sample(op);
}

}  // namespace hyb::kernels::cuda
