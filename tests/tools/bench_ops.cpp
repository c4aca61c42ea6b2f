// bench_ops [avx2] [one]: times the ops around the linears at the shapes of granite-4.0-h-350m: 32
// layers, 28 of them recurrent; "one" times one thread by its CPU time. Prints milliseconds for all
// layers of one step together, and bytes per second where memory is the limit.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>

#include "kernels/ops/attention.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/gated_norm.h"
#include "kernels/ops/pack_snapshot.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/ops/rope_kv_write.h"
#include "kernels/ops/sample.h"
#include "kernels/ops/ssd.h"
#include "kernels/probe.h"
#include "kernels/visit.h"
#include "tests/kernels/support.h"

namespace {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

constexpr std::int64_t hidden = 768, heads = 48, rows = 32, columns = 128, groups = 1;
constexpr std::int64_t inner = heads * rows, conv = inner + 2 * groups * columns;
constexpr std::int64_t projected = inner + conv + heads, vocab = 100352;

/// Of the whole process, so that one thread is timed right on a busy machine.
double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double wall_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double (*seconds_now)() = wall_seconds;

double seconds_of(const std::function<void()>& body, int repetitions) {
  double best = 1e9;
  for (int i = 0; i < repetitions; ++i) {
    const double begin = seconds_now();
    body();
    best = std::min(best, seconds_now() - begin);
  }
  return best;
}

void report(const char* name, double seconds, int layers, double bytes = 0.0) {
  fmt::print("  {:<28}{:9.3f} ms in {:2} layers", name, 1e3 * seconds * layers, layers);
  if (bytes > 0.0) fmt::print("{:9.1f} GB/s", bytes / seconds / 1e9);
  fmt::print("\n");
  std::fflush(stdout);
}

Tensor filled(Buffer& buffer, DType dtype, std::initializer_list<std::int64_t> dims, float spread) {
  std::int64_t size = 1;
  for (const std::int64_t dim : dims) size *= dim;
  buffer = Buffer(Device::cpu, static_cast<std::size_t>(size) * size_of(dtype));
  const Tensor view = buffer.tensor(0, dtype, dims);
  std::minstd_rand engine(3);
  for (std::int64_t i = 0; i < size; ++i) {
    const float value = spread * (static_cast<float>(engine() % 2001) / 1000.0F - 1.0F);
    visit_kv(dtype, [&]<typename T>(Tag<T>) { view.as<T>()[i] = from_float<T>(value); });
  }
  return view;
}

/// The recurrent layers' ops for `spans` spans of `each` tokens.
void bench_mixer(Queue& queue, std::int32_t spans, std::int32_t each) {
  const std::int64_t tokens = std::int64_t{spans} * each;
  fmt::print("mixer, {} spans of {} tokens\n", spans, each);
  Buffer b[9];
  const Tensor line = filled(b[0], DType::bf16, {tokens, projected}, 2.0F);
  const Tensor mixed = filled(b[1], DType::bf16, {tokens, conv}, 1.0F);
  const Tensor weight = filled(b[2], DType::f32, {conv, 4}, 0.5F);
  const Tensor bias = filled(b[3], DType::f32, {conv}, 0.5F);
  const Tensor windows = filled(b[4], DType::bf16, {spans, conv, 3}, 1.0F);
  const Tensor of_heads = filled(b[5], DType::f32, {inner}, 1.0F);
  const Tensor y = filled(b[7], DType::bf16, {tokens, inner}, 1.0F);
  const TestTensor rate = random_rates(heads, 9);
  const Tensor hidden_rows = filled(b[8], DType::bf16, {tokens, hidden}, 1.0F);
  std::vector<std::int32_t> begins, slots;
  for (std::int32_t r = 0; r <= spans; ++r) begins.push_back(r * each);
  for (std::int32_t r = 0; r < spans; ++r) slots.push_back(r);
  const Table begin(begins), slot(slots);
  const int n = tokens > 64 ? 20 : 200;
  report("rms_norm",
         seconds_of(
             [&] {
               rms_norm(queue,
                        {.x = hidden_rows, .weight = of_heads.rows(0, hidden), .y = hidden_rows});
             },
             n),
         65);
  report("causal_conv",
         seconds_of(
             [&] {
               causal_conv(queue, {.x = line.columns(inner, conv),
                                   .weight = weight,
                                   .bias = bias,
                                   .windows = windows,
                                   .span_begin = begin,
                                   .read_slot = slot,
                                   .write_slot = slot,
                                   .y = mixed});
             },
             n),
         28);
  for (const DType type : {DType::f32, DType::bf16}) {
    const Tensor state = filled(b[6], type, {spans, heads, rows, columns}, 1.0F);
    report(type == DType::f32 ? "ssd" : "ssd, bf16 state",
           seconds_of(
               [&] {
                 mamba_scan(queue, {.x = mixed,
                                    .dt = line.columns(inner + conv, heads),
                                    .rate = rate,
                                    .d = of_heads.rows(0, heads),
                                    .dt_bias = of_heads.rows(0, heads),
                                    .state = state,
                                    .span_begin = begin,
                                    .read_slot = slot,
                                    .write_slot = slot,
                                    .y = y,
                                    .shape = {.groups = groups}});
               },
               n),
           28, 2.0 * static_cast<double>(state.size()) * static_cast<double>(size_of(type)));
  }
  report("gated_norm",
         seconds_of(
             [&] {
               gated_norm(queue,
                          {.x = y, .gate = line.columns(0, inner), .weight = of_heads, .y = y});
             },
             n),
         28);
}

/// In the shape of LFM2-350M.
void bench_short_conv(Queue& queue, std::int32_t tokens) {
  constexpr std::int64_t channels = 1024;
  Buffer b[4];
  const Tensor x = filled(b[0], DType::bf16, {tokens, 3 * channels}, 1.0F);
  const Tensor weight = filled(b[1], DType::f32, {channels, 3}, 0.5F);
  const Tensor windows = filled(b[2], DType::bf16, {1, channels, 2}, 1.0F);
  const Tensor y = filled(b[3], DType::bf16, {tokens, channels}, 1.0F);
  const Table begin({0, tokens}), slot({0});
  fmt::print("short convolution, {} tokens\n", tokens);
  report("short_conv",
         seconds_of(
             [&] {
               gated_conv(queue, {.x = x,
                                  .weight = weight,
                                  .bias = {},
                                  .windows = windows,
                                  .span_begin = begin,
                                  .read_slot = slot,
                                  .write_slot = slot,
                                  .y = y});
             },
             tokens > 64 ? 20 : 200),
         10, static_cast<double>(2 * (x.size() + y.size())));
}

void bench_rope(Queue& queue, const Tensor& q, std::int64_t heads_of_q, std::int64_t head_dim) {
  const std::vector<std::int32_t> where(static_cast<std::size_t>(q.dim(0)), 5000);
  const Table position_of_row(where);
  report("rope",
         seconds_of(
             [&] {
               rope(queue, {.x = q,
                            .position_of_row = position_of_row,
                            .heads = heads_of_q,
                            .head_dim = head_dim,
                            .frequencies = rope_frequencies(head_dim)});
             },
             10),
         4);
}

struct AttentionShape {
  std::int64_t heads, kv_heads, head_dim;
  std::int32_t spans, tokens_each, position;
  std::int64_t window = 0;  ///< 0: none

  /// What one token per span reads.
  double bytes(DType kv) const {
    const std::int64_t before = position + 1;
    const std::int64_t keys = window == 0 ? before : std::min(window, before);
    return static_cast<double>(spans * keys * 2 * kv_heads * head_dim) *
           static_cast<double>(size_of(kv));
  }
};

void bench_attention(Queue& queue, const AttentionShape& shape, DType kv = DType::bf16) {
  const auto [heads_of_q, kv_heads, head_dim, spans, each, position, window] = shape;
  const std::int64_t tokens = std::int64_t{spans} * each;
  const std::int32_t pages_each = (position + each + 15) / 16;
  Buffer b[4];
  const Tensor q = filled(b[0], DType::bf16, {tokens, heads_of_q * head_dim}, 1.0F);
  const Tensor k = filled(b[1], DType::bf16, {tokens, kv_heads * head_dim}, 1.0F);
  const Tensor arena = filled(b[2], kv, {spans * pages_each, 2 * kv_heads * 16 * head_dim}, 1.0F);
  const Tensor y = filled(b[3], DType::bf16, {tokens, heads_of_q * head_dim}, 1.0F);
  std::vector<std::int32_t> begins, positions, page_begins, ids;
  for (std::int32_t r = 0; r <= spans; ++r) {
    begins.push_back(r * each);
    page_begins.push_back(r * pages_each);
    if (r < spans) positions.push_back(position);
  }
  for (std::int32_t i = 0; i < spans * pages_each; ++i) ids.push_back(i);
  std::shuffle(ids.begin(), ids.end(), std::minstd_rand(1));
  const Table begin(begins), at(positions), page_begin(page_begins), pages(ids);
  fmt::print("attention {}/{} heads of {}, {} spans of {} tokens at {}, window {}, {}\n",
             heads_of_q, kv_heads, head_dim, spans, each, position, window, name_of(kv));
  const int n = 10;
  report("kv_write",
         seconds_of(
             [&] {
               kv_write(queue, {.k = k,
                                .v = k,
                                .kv = {.arena = arena,
                                       .span_begin = begin,
                                       .position = at,
                                       .page_begin = page_begin,
                                       .pages = pages},
                                .kv_heads = kv_heads,
                                .head_dim = head_dim});
             },
             n),
         4);
  report("attention",
         seconds_of(
             [&] {
               paged_attention(queue, {.q = q,
                                       .kv = {.arena = arena,
                                              .span_begin = begin,
                                              .position = at,
                                              .page_begin = page_begin,
                                              .pages = pages},
                                       .y = y,
                                       .heads = heads_of_q,
                                       .kv_heads = kv_heads,
                                       .head_dim = head_dim,
                                       .scale = 0.125F,
                                       .window = window});
             },
             n),
         4, each == 1 ? shape.bytes(kv) : 0.0);
  if (each > 1) bench_rope(queue, q, heads_of_q, head_dim);
}

/// Snapshots of all 28 layers, enough consecutive slots that no last-level cache holds them,
/// beside a copy of a slot's bytes by the same threads.
void bench_snapshot(Queue& queue, DType dtype) {
  constexpr std::size_t slots = 24, layers = 28, window = conv * 3 * 2;
  constexpr std::size_t values = heads * rows * columns, scales = heads * rows * 2;
  const std::size_t state = values * size_of(dtype), slot_bytes = layers * (window + state);
  const std::size_t packed_bytes = layers * (window + scales + values);
  std::vector<SnapshotPiece> pieces;
  for (std::size_t i = 0; i < layers; ++i) {
    const std::size_t packed = i * (window + scales + values);
    pieces.push_back({.slot_window = i * (window + state),
                      .slot_state = i * (window + state) + window,
                      .packed_window = packed,
                      .packed_scales = packed + window,
                      .packed_values = packed + window + scales,
                      .window_bytes = window,
                      .rows = heads * rows,
                      .columns = columns});
  }
  Buffer from, to(Device::cpu, slots * slot_bytes);
  filled(from, dtype, {static_cast<std::int64_t>(slots * slot_bytes / size_of(dtype))}, 1.0F);
  const auto view = [](const Buffer& buffer, std::size_t i, std::size_t bytes) {
    return buffer.tensor(i * bytes, DType::u8, {static_cast<std::int64_t>(bytes)});
  };
  fmt::print("snapshot of {:.1f} MiB ({}) in {:.1f} MiB\n",
             static_cast<double>(slot_bytes) / 0x1p20, name_of(dtype),
             static_cast<double>(packed_bytes) / 0x1p20);
  const auto time = [&](const char* name, double bytes, auto body) {
    const double seconds = seconds_of(
        [&] {
          for (std::size_t i = 0; i < slots; ++i) body(i);
        },
        5);
    report(name, seconds / static_cast<double>(slots), 1, bytes);
  };
  time("memcpy of the slot", 2.0 * static_cast<double>(slot_bytes), [&](std::size_t slot) {
    queue.parallel([&](int thread, int threads) {
      const Slice part = slice_of(static_cast<std::int64_t>(slot_bytes), 64, thread, threads);
      const std::size_t at = slot * slot_bytes + static_cast<std::size_t>(part.begin);
      std::memcpy(to.data() + at, from.data() + at,
                  static_cast<std::size_t>(part.end - part.begin));
    });
  });
  const auto moved = static_cast<double>(slot_bytes + packed_bytes);
  time("pack_snapshot", moved, [&](std::size_t i) {
    pack_snapshot(queue, {pieces, dtype, view(from, i, slot_bytes), view(to, i, packed_bytes)});
  });
  time("unpack_snapshot", moved, [&](std::size_t i) {
    unpack_snapshot(queue, {pieces, dtype, view(to, i, packed_bytes), view(from, i, slot_bytes)});
  });
}

void bench_sample(Queue& queue, std::int64_t count) {
  Buffer b[2];
  const Tensor logits = filled(b[0], DType::f32, {count, vocab}, 12.0F);
  b[1] = Buffer(Device::cpu, sample_workspace_bytes(Device::cpu, vocab, queue.threads()));
  const Tensor workspace = b[1].tensor(0, DType::u8, {static_cast<std::int64_t>(b[1].bytes())});
  std::vector<SampledToken> out(static_cast<std::size_t>(count));
  fmt::print("sample, {} rows of {}\n", count, vocab);
  const auto time = [&](const char* name, const SamplingNumbers& numbers) {
    const SamplingParams params = {numbers};
    const std::vector<SampleRow> all(static_cast<std::size_t>(count), SampleRow{.params = &params});
    report(name,
           seconds_of(
               [&] {
                 sample(queue, {.logits = logits,
                                .vocab_used = vocab,
                                .rows = all,
                                .out = out,
                                .workspace = workspace});
               },
               10),
           1);
  };
  time("greedy", {.temperature = 0.0F});
  time("greedy, logprobs", {.temperature = 0.0F, .logprobs = 5});
  time("temperature", {.temperature = 1.0F});
  time("top_k 50, top_p 0.9", {.temperature = 1.0F, .top_k = 50, .top_p = 0.9F});
  time("top_p 0.9", {.temperature = 1.0F, .top_p = 0.9F});
  time("top_p 0.99 at 3.0", {.temperature = 3.0F, .top_p = 0.99F});
}

}  // namespace

int main(int argc, char** argv) {
  bool narrow = false;
  int threads = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "avx2") == 0) narrow = true;
    if (std::strcmp(argv[i], "one") == 0) threads = 1;
  }
  if (threads == 1) seconds_now = cpu_seconds;
  Queue queue(Device::cpu, {.threads = threads, .isa = narrow ? Isa::avx2 : best_isa()});
  fmt::print("{} threads, {}, reads {:.1f} GB/s\n", queue.threads(), name_of(queue.isa()),
             ReadProbe(queue).bytes_per_s() / 1e9);
  bench_mixer(queue, 1, 512);
  bench_mixer(queue, 1, 1);
  bench_mixer(queue, 16, 1);
  bench_short_conv(queue, 512);
  bench_short_conv(queue, 1);
  for (const DType kv : {DType::bf16, DType::f8_e4m3}) {
    bench_attention(queue, {12, 4, 64, 1, 512, 0}, kv);
    bench_attention(queue, {12, 4, 64, 1, 512, 8192}, kv);
    bench_attention(queue, {12, 4, 64, 1, 1, 512}, kv);
    bench_attention(queue, {12, 4, 64, 1, 1, 32767}, kv);
    bench_attention(queue, {12, 4, 128, 16, 1, 8191}, kv);
    bench_attention(queue, {64, 8, 64, 1, 1, 32767}, kv);
    bench_attention(queue, {64, 8, 64, 1, 1, 32767, 128}, kv);
    bench_attention(queue, {64, 8, 64, 1, 512, 8192}, kv);
    bench_attention(queue, {64, 8, 64, 1, 512, 8192, 128}, kv);
    bench_attention(queue, {8, 1, 512, 1, 1, 32767}, kv);
  }
  bench_snapshot(queue, DType::f32);
  bench_snapshot(queue, DType::bf16);
  bench_sample(queue, 1);
  bench_sample(queue, 16);
  return 0;
}
