#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "kernels/cuda/staging.h"
#include "tests/cuda/support.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/kernels/linear/coded_weights.h"
#include "tests/kernels/ops/moe_case.h"

namespace coded_experts_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Work {
  std::int64_t kernels, blocks;
  int processors;
  bool operator==(const Work&) const = default;
};

/// What a block of experts launches, whose weights are packed by `quantize`.
Work work_of(const MoeCase& block, bool batch_invariant, Quantize quantize) {
  const MoeNumbers numbers(block, DType::bf16);
  Queue card(Device::cuda, {.threads = 1, .isa = {}});
  const auto pack = [&](const MoeMatrix& matrix, Quantize as) {
    return Weight::pack(card, matrix.source, DType::bf16, as);
  };
  const Weight router = pack(numbers.router, Quantize::none),
               gate_up = pack(numbers.gate_up, quantize), down = pack(numbers.down, quantize),
               shared_gate_up = pack(numbers.shared_gate_up, quantize),
               shared_down = pack(numbers.shared_down, quantize);
  card.stream().wait();
  const std::size_t bytes = cuda::moe_workspace_bytes(numbers.c.shape(DType::bf16));
  const cuda::DeviceBytes room = cuda::make_device(bytes);
  cuda::check(cudaMemset(room.get(), 0, bytes), "cudaMemset");
  const DeviceTensor x(numbers.x), norm(numbers.norm);
  cuda::Stream stream;
  stream.set_batch_invariant(batch_invariant);
  emulator::take_host_calls();
  emulator::take_blocks_run();
  cuda::fused_moe(stream,
                  {.x = x,
                   .norm = {.weight = norm, .eps = 1e-5F},
                   .router = &router,
                   .gate_up = &gate_up,
                   .down = &down,
                   .shared_gate_up = &shared_gate_up,
                   .shared_down = &shared_down,
                   .active = block.active,
                   .y = x,
                   .workspace = {room.get(), DType::u8, {static_cast<std::int64_t>(bytes)}}});
  stream.wait();
  return {emulator::take_host_calls().kernels, emulator::take_blocks_run(), stream.processors()};
}

}  // namespace

TEST_SUITE("cuda_emulator/coded_experts") {
  TEST_CASE("experts in codes take the routes of bf16: the same launches with the same blocks") {
    for (const std::int64_t tokens : {1, 16, 17, 64, 100}) {
      for (const bool batch_invariant : {false, true}) {
        CAPTURE(tokens);
        CAPTURE(batch_invariant);
        const MoeCase block = {.tokens = tokens,
                               .hidden = 136,
                               .experts = 6,
                               .active = 2,
                               .intermediate = 72,
                               .shared = 40};
        const Work plain = work_of(block, batch_invariant, Quantize::none);
        for (const Quantize quantize : {Quantize::q8, Quantize::q4}) {
          const Work coded = work_of(block, batch_invariant, quantize);
          CHECK(coded.kernels == plain.kernels);
          CHECK(coded.blocks == plain.blocks);
        }
        if (tokens <= 16 && !batch_invariant) CHECK(plain.kernels == 3);
      }
    }
  }

  TEST_CASE("a small batch's products of the experts are one wave of blocks") {
    const MoeCase block = {
        .tokens = 3, .hidden = 72, .experts = 8, .active = 4, .intermediate = 400, .shared = 40};
    for (const Quantize quantize : {Quantize::none, Quantize::q8}) {
      const Work work = work_of(block, false, quantize);
      CHECK(work.kernels == 3);
      // The router, the shared expert's 5 tiles of gates and ups, and 9 blocks of columns of y.
      CHECK(work.blocks == 1 + 5 + 2 * work.processors + 9);
    }
  }
}

}  // namespace coded_experts_test
