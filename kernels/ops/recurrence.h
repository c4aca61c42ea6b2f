#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/ops/share.h"
#include "kernels/tensor.h"
#include "kernels/visit.h"

/// What the plain loops of ssd and delta_rule do alike around their steps. A Job is the share of
/// either: the state of a head is its `rows` times `columns`.
namespace hyb::kernels {

inline float softplus(float value) { return value > 20.0F ? value : std::log1p(std::exp(value)); }

/// A span of one head: the state goes from slot to slot, and there from token to token by
/// step(token, head, state).
template <typename Job, typename Step>
void run_head(const Job& job, std::int64_t span, std::int64_t head, Step&& step) {
  const std::int64_t size = job.rows * job.columns;
  const std::int32_t from = job.read_slot[span], to = job.write_slot[span];
  auto* const state = job.state + to * job.slot_stride + head * size;
  const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(*state);
  if (from < 0) {
    std::memset(state, 0, bytes);
  } else if (from != to) {
    std::memcpy(state, job.state + from * job.slot_stride + head * size, bytes);
  }
  for (std::int64_t t = job.span_begin[span]; t < job.span_begin[span + 1]; ++t) {
    step(t, head, state);
  }
}

/// The thread's share of `heads`, in every span.
template <typename Job, typename Step>
void run_heads(const Job& job, std::int64_t heads, Step&& step) {
  const Slice share = slice_of(heads, 1, job.thread, job.threads);
  for (std::int64_t span = 0; span < job.spans; ++span) {
    for (std::int64_t head = share.begin; head < share.end; ++head) {
      run_head(job, span, head, step);
    }
  }
}

/// Calls body(Tag of activations, Tag of states, thread, threads) on as many threads as there is
/// work for: every token meets every element of a slot.
template <typename Body>
void share_recurrence(Queue& queue, const Tensor& x, const Tensor& state, Body&& body) {
  auto part = [&](int thread, int threads) {
    visit_float(x.dtype, [&]<typename T>(Tag<T> activations) {
      visit_float(state.dtype,
                  [&]<typename S>(Tag<S> states) { body(activations, states, thread, threads); });
    });
  };
  const std::int64_t elements = x.dim(0) * state.dim(1) * state.dim(2) * state.dim(3);
  if (elements <= elements_alone) {
    queue.alone(part);
  } else {
    queue.parallel(part);
  }
}

}  // namespace hyb::kernels
