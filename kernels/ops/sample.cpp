#include "kernels/ops/sample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "core/base/error.h"
#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/sample_steps.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels {

template <>
LargestLogit largest_logit<Isa::plain>(const float* logits, std::int32_t count) {
  LargestLogit best{-std::numeric_limits<float>::infinity(), 0, true};
  for (std::int32_t i = 0; i < count; ++i) {
    if (std::isnan(logits[i])) return {logits[i], i, false};
    if (logits[i] > best.value) best = {logits[i], i, true};
  }
  return best;
}

template <>
double weigh_logits<Isa::plain>(const LogitWeights& job) {
  double sum = 0.0;
  for (std::int32_t i = 0; i < job.count; ++i) {
    float weight = std::exp((job.logits[i] - job.largest) * job.inverse_temperature);
    if (weight < job.floor) weight = 0.0F;
    if (job.weights != nullptr) job.weights[i] = weight;
    sum += weight;
  }
  return sum;
}

namespace {

void check(const SampleRow& row, std::int32_t vocab) {
  check_values(*row.params, vocab);
  const Check check_row("sample");
  check_row.that(row.prompt_tokens >= 0 && row.prompt_tokens <= std::ssize(row.history),
                 "prompt_tokens is within history", row.prompt_tokens);
  check_row.that(row.mask.empty() || row.mask.size() == mask_words(vocab),
                 "a mask has a bit per token", std::ssize(row.mask));
  if (!has_penalties(*row.params)) return;
  for (const TokenId token : row.history) {
    check_row.that(index(token) >= 0 && index(token) < vocab, "history is of the vocabulary",
                   index(token));
  }
}

void check(const Sample& op) {
  const Check check_op("sample");
  const std::int64_t rows = op.logits.dim(0), vocab = op.logits.dim(1);
  check_op.tensor(op.logits, "logits", DType::f32, {rows, vocab});
  check_op.that(op.vocab_used >= 1 && op.vocab_used <= vocab, "vocab_used is 1 to V",
                op.vocab_used);
  check_op.that(std::ssize(op.rows) == rows, "rows has one entry per row", std::ssize(op.rows));
  check_op.that(std::ssize(op.out) == rows, "out has one entry per row", std::ssize(op.out));
  check_rows(op.rows, op.vocab_used);
}

void check_workspace(const Sample& op, int threads) {
  const std::int64_t bytes =
      op.workspace.size() * static_cast<std::int64_t>(size_of(op.workspace.dtype));
  Check("sample").that(
      !op.workspace.empty() && bytes >= static_cast<std::int64_t>(sample_workspace_bytes(
                                            Device::cpu, op.vocab_used, threads)),
      "workspace has sample_workspace_bytes", bytes);
}

/// One thread's part of the workspace, and the passes of the queue's ISA level.
struct Scratch {
  std::span<float> logits;
  std::span<std::int32_t> counts;  ///< the same bytes as weights: needed one after the other
  std::span<float> weights;
  std::span<Candidate> candidates;
  LargestLogit (*largest_logit)(const float*, std::int32_t);
  double (*weigh_logits)(const LogitWeights&);
};

constexpr std::size_t bytes_per_logit = 2 * sizeof(float) + sizeof(Candidate);

Scratch scratch_of(const Sample& op, int thread, Isa isa) {
  const auto vocab = static_cast<std::size_t>(op.vocab_used);
  auto* const bytes = static_cast<std::byte*>(op.workspace.data) +
                      static_cast<std::size_t>(thread) * vocab * bytes_per_logit;
  auto* const candidates = reinterpret_cast<Candidate*>(bytes);
  auto* const logits = reinterpret_cast<float*>(candidates + vocab);
  return {.logits = {logits, vocab},
          .counts = {reinterpret_cast<std::int32_t*>(logits + vocab), vocab},
          .weights = {logits + vocab, vocab},
          .candidates = {candidates, vocab},
          .largest_logit = isa == Isa::avx512 ? largest_logit<Isa::avx512>
                           : isa == Isa::avx2 ? largest_logit<Isa::avx2>
                                              : largest_logit<Isa::plain>,
          .weigh_logits = isa == Isa::avx512 ? weigh_logits<Isa::avx512>
                          : isa == Isa::avx2 ? weigh_logits<Isa::avx2>
                                             : weigh_logits<Isa::plain>};
}

/// Returns the least logit that top_n_sigma keeps. Sums are those of a card's block to the bit: of
/// 512 threads that take the logits in turns, then in pairs of each 32, then of those one after the
/// other.
float least_logit(std::span<const float> logits, float largest, float sigmas) {
  constexpr std::size_t threads = 512, warp = 32;
  std::array<double, threads> sums{}, squares{};
  std::size_t count = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isinf(logits[i])) continue;
    const double below = static_cast<double>(largest - logits[i]);  // its square is exact
    sums[i % threads] += below;
    squares[i % threads] += below * below;
    ++count;
  }
  const auto total = [](std::array<double, threads>& values) {
    double all = 0.0;
    for (auto first = values.begin(); first != values.end(); first += warp) {
      for (std::size_t half = warp / 2; half > 0; half /= 2) {
        for (std::size_t i = 0; i < half; ++i) first[i] += first[i + half];
      }
      all += *first;
    }
    return all;
  };
  const double mean = total(sums) / static_cast<double>(count);
  const double variance = std::fma(-mean, mean, total(squares) / static_cast<double>(count));
  const double deviation = variance > 0.0 ? std::sqrt(variance) : 0.0;
  return static_cast<float>(std::fma(-static_cast<double>(sigmas), deviation, double{largest}));
}

/// The token at which the running sum of `weight(i)` passes `target`, at the latest the last one
/// that has any weight.
template <typename Weight>
std::int32_t walk(std::int32_t count, double target, Weight weight) {
  std::int32_t last = 0;
  double sum = 0.0;
  for (std::int32_t i = 0; i < count; ++i) {
    const double each = weight(i);
    if (each <= 0.0) continue;
    sum += each;
    last = i;
    if (sum > target) break;
  }
  return last;
}

struct Distribution {
  std::span<const float> logits;
  float largest;
  float inverse_temperature;

  double weight(float logit) const {
    return std::exp(static_cast<double>((logit - largest) * inverse_temperature));
  }
};

/// Draws in the order of ids, so that without top_k nothing has to be sorted.
std::int32_t draw_by_id(const SampleRow& row, const Distribution& distribution,
                        const Scratch& scratch) {
  const SamplingNumbers& by = *row.params;
  const auto count = static_cast<std::int32_t>(distribution.logits.size());
  const LogitWeights job{.logits = distribution.logits.data(),
                         .count = count,
                         .largest = distribution.largest,
                         .inverse_temperature = distribution.inverse_temperature,
                         .floor = by.top_p < 1.0F ? 0.0F : by.min_p,
                         .weights = scratch.weights.data()};
  double total = scratch.weigh_logits(job);
  if (by.top_p < 1.0F) {
    keep_nucleus(scratch.weights, static_cast<double>(by.top_p) * total, scratch.candidates);
    total = 0.0;
    for (float& weight : scratch.weights) {
      if (weight < by.min_p) weight = 0.0F;
      total += static_cast<double>(weight);
    }
  }
  return walk(count, uniform_draw(by.seed, row.draw) * total, [&](std::int32_t i) {
    return static_cast<double>(scratch.weights[static_cast<std::size_t>(i)]);
  });
}

/// Draws from the top_k candidates, likeliest first.
std::int32_t draw_from_best(const SampleRow& row, const Distribution& distribution,
                            const Scratch& scratch) {
  const SamplingNumbers& by = *row.params;
  const std::int32_t count = select_likeliest(distribution.logits, by.top_k, scratch.candidates);
  const auto weight = [&](std::int32_t i) {
    return distribution.weight(scratch.candidates[static_cast<std::size_t>(i)].logit);
  };
  double total = 0.0;
  for (std::int32_t i = 0; i < count; ++i) total += weight(i);
  std::int32_t kept = 0;
  double sum = 0.0;
  const double mass = static_cast<double>(by.top_p) * total;
  while (kept < count && (kept == 0 || sum < mass) &&
         weight(kept) >= static_cast<double>(by.min_p)) {
    sum += weight(kept++);
  }
  const std::int32_t place = walk(kept, uniform_draw(by.seed, row.draw) * sum, weight);
  return scratch.candidates[static_cast<std::size_t>(place)].token;
}

void set_logprobs(int wanted, std::span<const float> raw, float largest, const Scratch& scratch,
                  SampledToken& out) {
  const double sum = scratch.weigh_logits({.logits = raw.data(),
                                           .count = static_cast<std::int32_t>(raw.size()),
                                           .largest = largest,
                                           .inverse_temperature = 1.0F,
                                           .floor = 0.0F,
                                           .weights = nullptr});
  const double log_sum = static_cast<double>(largest) + std::log(sum);
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - log_sum);
  };
  out.logprob = logprob(raw[static_cast<std::size_t>(index(out.token))]);
  const auto count = static_cast<std::size_t>(select_likeliest(raw, wanted, scratch.candidates));
  for (const Candidate& each : scratch.candidates.first(count)) {
    out.top.push_back({TokenId{each.token}, logprob(each.logit)});
  }
}

SampledToken sample_row(const SampleRow& row, std::span<const float> raw, const Scratch& scratch) {
  const SamplingNumbers& by = *row.params;
  const SampledToken nothing = {.token = TokenId{-1}, .finite = false};
  const LargestLogit of_raw = scratch.largest_logit(raw.data(), static_cast<int>(raw.size()));
  if (!of_raw.is_number || std::isinf(of_raw.value)) return nothing;
  LargestLogit best = of_raw;
  std::span<const float> logits = raw;
  const bool drops = by.top_n_sigma > 0.0F && by.temperature >= temperature_min;
  if (drops || has_adjustments(row)) std::ranges::copy(raw, scratch.logits.begin());
  if (has_adjustments(row)) {
    adjust_logits(row, scratch.logits, scratch.counts);
    logits = scratch.logits;
    best = scratch.largest_logit(logits.data(), static_cast<int>(logits.size()));
    if (!best.is_number || std::isinf(best.value)) return nothing;
  }
  if (drops) {
    const float least = least_logit(logits, best.value, by.top_n_sigma);
    for (float& logit : scratch.logits) {
      if (logit < least) logit = -std::numeric_limits<float>::infinity();
    }
    logits = scratch.logits;
  }
  std::int32_t token = best.index;
  if (by.temperature >= temperature_min) {
    const Distribution distribution{logits, best.value, 1.0F / by.temperature};
    const bool best_only = by.top_k > 0 && by.top_k < std::ssize(logits);
    token = best_only ? draw_from_best(row, distribution, scratch)
                      : draw_by_id(row, distribution, scratch);
  }
  SampledToken out = {.token = TokenId{token}};
  if (by.logprobs >= 0) set_logprobs(by.logprobs, raw, of_raw.value, scratch, out);
  return out;
}

}  // namespace

void check_rows(std::span<const SampleRow> rows, std::int32_t vocab_used) {
  for (const SampleRow& row : rows) check(row, vocab_used);
}

std::size_t sample_workspace_bytes(Device device, std::int64_t vocab, int threads) {
  if (device == Device::cuda) return 0;
  return static_cast<std::size_t>(vocab) * static_cast<std::size_t>(threads) * bytes_per_logit;
}

void sample(Queue& queue, const Sample& op) {
  check(op);
  if (on_card(queue, [&](auto& stream) { cuda::sample(stream, op); })) return;
  check_workspace(op, queue.threads());
  const auto vocab = static_cast<std::size_t>(op.vocab_used);
  auto some_rows = [&](int thread, int threads) {
    const Scratch scratch = scratch_of(op, thread, queue.isa());
    const Slice slice = slice_of(op.logits.dim(0), 1, thread, threads);
    for (std::int64_t r = slice.begin; r < slice.end; ++r) {
      const auto i = static_cast<std::size_t>(r);
      op.out[i] = sample_row(op.rows[i], {op.logits.row<float>(r), vocab}, scratch);
    }
  };
  if (op.logits.dim(0) > 1) {
    queue.parallel(some_rows);
  } else {
    queue.alone(some_rows);
  }
}

}  // namespace hyb::kernels
