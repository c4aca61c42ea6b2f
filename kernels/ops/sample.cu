#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/ops/sample_device.h"
#include "kernels/ops/sample_passes.h"
#include "kernels/ops/sampler.h"

namespace hyb::kernels::cuda {
namespace {

/// Below this a temperature is 0, as in the plain loop.
constexpr float temperature_min = 1e-5F;

struct Params {
  float* logits;
  std::int64_t stride;
  int vocab_used;
  SampleTables tables;
};

/// As adjust_logits, to the bit: products are rounded before anything is subtracted.
__device__ __forceinline__ void adjust(const SampleJob& job, float* logits) {
  for (int i = static_cast<int>(threadIdx.x); i < job.adjustments; i += sample_threads) {
    const TokenAdjustment& own = job.adjustment[i];
    float logit = logits[own.token];
    job.saved[i] = logit;
    if (own.is_penalized) {
      logit = logit > 0.0F ? logit / job.repetition_penalty
                           : product_rounded(logit, job.repetition_penalty);
      logit -= own.penalty;
    }
    for (int j = 0; j < own.biases; ++j) logit += job.biases[own.first_bias + j];
    logits[own.token] = own.is_banned ? -INFINITY : logit;
  }
  sync_block();
}

__device__ __forceinline__ void restore(const SampleJob& job, float* logits) {
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
    each_logit(row, [&](int id, float logit) {
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
      out.likeliest[rank] = {TokenId{id}, logprob_of(row.logits[id], log_sum)};
    }
  }
  if (threadIdx.x == 0) out.alternatives = count;
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

/// What top_k and top_p leave of the row, and its mass.
__device__ Cut cut_row(SampleShared& shared, const LogitRow& row, const SampleJob& job,
                       Mass& kept) {
  const Sums all = count_distances(shared, row);
  kept = all.mass;
  Place last{.key = 0xffffffffU, .wanted = 1, .equals = 1, .each = 0, .before = {}};
  if (job.top_k > 0 && static_cast<Mass>(job.top_k) < all.count) {
    last = find_place(shared, row, false, static_cast<Mass>(job.top_k));
    kept = last.before.mass + last.wanted * last.each;
  }
  if (job.top_p < 1.0F) {
    last = find_place(shared, row, true, part_of(static_cast<double>(job.top_p), kept, true));
    kept = last.before.mass + last.wanted * last.each;
  }
  return cut_at(shared, row, last);
}

/// Rows that top_k cuts are drawn from in the order of likelihood, all others in that of ids.
__device__ int draw_token(SampleShared& shared, const LogitRow& row, const SampleJob& job) {
  const bool is_ordered = job.top_k > 0 && job.top_k < row.count;
  Cut cut;
  Mass kept = 0;
  if (is_ordered || job.top_p < 1.0F) cut = cut_row(shared, row, job, kept);
  const auto mass_of = [&](int id, float logit) {
    if (!cut.has(rank_key(logit), id) || row.weight(logit) < job.min_p) return Mass{0};
    return row.mass(logit);
  };
  if (kept == 0 || job.min_p > 0.0F) {
    Mass own = 0;
    each_logit(row, [&](int id, float logit) { own += mass_of(id, logit); });
    kept = block_total(shared, own);
  }
  const Mass need = part_of(job.draw, kept, false);
  if (!is_ordered) return find_id(shared, row, need, mass_of);
  return find_last(shared, row, find_place(shared, row, true, need));
}

__device__ void answer(const Params& p, SampleOutcome outcome, int token) {
  if (threadIdx.x != 0) return;
  SampledToken& out = p.tables.out[blockIdx.x];
  out.outcome = outcome;
  out.token = TokenId{token};
  if (p.tables.tokens == nullptr) return;
  p.tables.tokens[blockIdx.x] =
      outcome == SampleOutcome::chosen ? token : -static_cast<int>(outcome);
}

/// A block owns a row. Weights are f32, cut off at 2^-44 of the largest, and summed exactly: the
/// choice is the plain loop's but where its rounding of a weight or of a sum puts a token on the
/// other side of a threshold. The same in every run, alone and among other rows.
__global__ void __launch_bounds__(sample_threads, 1) sample_kernel(const Params p) {
  auto& shared = dynamic_shared<SampleShared>();
  let_next_kernel_start();
  wait_for_previous_kernel();
  const SampleJob job = p.tables.jobs[blockIdx.x];
  if (!job.is_wanted) return answer(p, SampleOutcome::chosen, 0);
  SampledToken& out = p.tables.out[blockIdx.x];
  LogitRow row{.logits = p.logits + blockIdx.x * p.stride, .count = p.vocab_used};
  if (threadIdx.x == 0) {
    out.logprob = 0.0F;
    out.alternatives = 0;
  }
  Largest best = find_largest(shared, row);
  if (!best.is_number || std::isinf(best.value)) {
    return answer(p, SampleOutcome::not_a_number, -1);
  }
  row.largest = best.value;
  double log_sum = 0.0;
  if (job.logprobs >= 0) log_sum = find_logprobs(shared, row, job.logprobs, out);

  SampleOutcome outcome = SampleOutcome::chosen;
  if (job.adjustments > 0) {
    adjust(job, row.logits);
    best = find_largest(shared, row);
    if (!best.is_number || std::isinf(best.value)) {
      outcome = best.is_number && best.value < 0.0F ? SampleOutcome::all_banned
                                                    : SampleOutcome::not_a_number;
    }
  }
  int token = best.id;
  if (outcome == SampleOutcome::chosen && job.temperature >= temperature_min) {
    row.largest = best.value;
    row.inverse_temperature = job.inverse_temperature;
    token = draw_token(shared, row, job);
  }
  if (job.adjustments > 0) restore(job, row.logits);
  if (outcome != SampleOutcome::chosen) {
    if (threadIdx.x == 0) out.alternatives = 0;
    return answer(p, outcome, -1);
  }
  answer(p, outcome, token);
  if (threadIdx.x == 0 && job.logprobs >= 0) out.logprob = logprob_of(row.logits[token], log_sum);
}

}  // namespace

void launch_sample(Stream& stream, const Tensor& logits, std::int32_t vocab_used,
                   const SampleTables& tables) {
  launch(stream,
         {.blocks = static_cast<unsigned>(logits.dim(0)),
          .threads = sample_threads,
          .shared_bytes = sizeof(SampleShared),
          .starts_early = true},
         sample_kernel,
         {.logits = logits.as<float>(),
          .stride = logits.row_stride,
          .vocab_used = vocab_used,
          .tables = tables});
}

void sample(Stream& stream, const Sample& op) {
  if (!op.rows.empty()) stream.sampler().sample(op);
}

}  // namespace hyb::kernels::cuda
