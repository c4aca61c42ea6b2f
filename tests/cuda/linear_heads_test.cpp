#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/support.h"
#include "tests/kernels/linear/coded_weights.h"

namespace cuda_linear_heads_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

constexpr DType bf = DType::bf16;

TEST_SUITE("cuda/linear") {
  TEST_CASE("heads at once, in launches of their own and from a graph: the bits of linear") {
    constexpr std::int64_t heads = 5, outputs = 18, inner = 256, first = 8, step = inner + 24;
    Queue card(Device::cuda, {.threads = 1, .isa = {}});
    for (const CodedFormat& format :
         {CodedFormat{WeightCode::plain}, CodedFormat{WeightCode::bits12},
          CodedFormat{WeightCode::q8}, CodedFormat{WeightCode::fp8}, blocks_of(GgufType::q4_1)}) {
      const PublishedMatrix published =
          format.code == WeightCode::blocks
              ? PublishedMatrix(format.type, heads, outputs, inner, 3)
              : PublishedMatrix(format.code == WeightCode::fp8 ? DType::f8_e4m3 : bf, heads,
                                outputs, inner, 1, inner, 3);
      const Weight weight = Weight::pack(card, published.source, bf,
                                         format.code == WeightCode::q8       ? Quantize::q8
                                         : format.code == WeightCode::bits12 ? Quantize::bits12
                                                                             : Quantize::none);
      REQUIRE(weight.code() == format.code);
      for (const std::int64_t tokens : {1, 2, 4, 7, 30, 70}) {
        for (const bool batch_invariant : {false, true}) {
          CAPTURE(kernels::testing::name_of(format.code));
          CAPTURE(tokens);
          CAPTURE(batch_invariant);
          cuda::Stream stream;
          stream.set_batch_invariant(batch_invariant);
          const TestTensor before(bf, {tokens, heads * outputs}, {8, 0});
          const DeviceTensor x(random_tensor(bf, {tokens, heads * step}, 4, 1.0F, {8, 0})),
              y(before), replayed(before), expected(before);
          LinearHeads op = {.x = x, .first = first, .weight = &weight, .y = y};
          cuda::linear_heads(stream, op);
          op.y = replayed;
          const cuda::Graph graph(stream, [&] { cuda::linear_heads(stream, op); });
          graph.replay(stream);
          for (std::int64_t h = 0; h < heads; ++h) {
            cuda::linear(stream, {.x = Tensor(x).columns(h * step + first, inner),
                                  .weight = &weight,
                                  .expert = h,
                                  .y = Tensor(expected).columns(h * outputs, outputs)});
          }
          stream.wait();
          CHECK(same_bytes(y.fetch(), expected.fetch()));
          CHECK(same_bytes(replayed.fetch(), expected.fetch()));
          CHECK(y.fetch().guards_intact());
        }
      }
    }
  }
}

}  // namespace cuda_linear_heads_test
