#include "tests/cuda/attention_case.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr DType bf = DType::bf16, fp8 = DType::f8_e4m3;

/// The same step over pages of bf16 with the same numbers.
Step widened(const Step& step) {
  Step wide = step;
  wide.s.kv_dtype = bf;
  wide.pages =
      converted(step.pages, bf, {step.pages.view().dim(0), step.pages.view().dim(1)}, {16, 8});
  return wide;
}

TEST_SUITE("cuda/attention_ring") {
  TEST_CASE("pages of F8_E4M3: the plain loop's answer, and to the bit that over bf16") {
    const AttentionCase shapes[] = {{4, 2, 64, bf, fp8},
                                    {3, 1, 128, bf, fp8},
                                    {5, 1, 256, bf, fp8},
                                    {20, 1, 64, bf, fp8, 6},
                                    {6, 2, 80, bf, fp8, 16, 40, true, true},
                                    {4, 1, 176, bf, fp8},
                                    {2, 2, 20, bf, fp8},
                                    {1, 1, 160, DType::f32, fp8, 16, 0, false, true}};
    for (const AttentionCase& shape : shapes) {
      CAPTURE(shape.head_dim);
      const Step step(shape, {{7, 20}, {0, 1}, {70, 3}, {37, 1}, {0, 40}});
      const TestTensor over_bf16 = attend(widened(step), {}, 3, 5);
      in_every_schedule([&](const std::string& schedule) {
        CAPTURE(schedule);
        const TestTensor answer = attend(step, {}, 3, 5);
        check_close(step, answer);
        CHECK(same_bytes(answer, over_bf16));
      });
    }
    const Step odd({2, 2, 24, bf, fp8}, {{7, 20}, {0, 1}});  // no whole pieces: the plain kernel
    check_close(odd, attend(odd));
  }

  TEST_CASE("pages of F8_E4M3 at the ends of tiles and runs, runs shared or not") {
    for (const std::int64_t head_dim : {64, 128, 256}) {
      CAPTURE(head_dim);
      const Step step({3, 1, head_dim, bf, fp8},
                      {{62, 1}, {63, 2}, {255, 1}, {256, 1}, {510, 3}, {767, 30}});
      const TestTensor all = workspace_for(step, 800);
      const TestTensor over_bf16 = attend(widened(step));
      in_every_schedule([&](const std::string& schedule) {
        CAPTURE(schedule);
        const TestTensor answer = attend(step);
        check_close(step, answer);
        CHECK(same_bytes(answer, over_bf16));
        CHECK(same_bytes(attend(step, all, 2, 2), answer));
      });
    }
  }

  TEST_CASE("every code is read as its number") {
    for (const DType dtype : {bf, DType::f32}) {  // the routes of matrices, and the plain one
      Step step({1, 1, 256, dtype, fp8}, {{0, 1}});
      for (std::int64_t i = 0; i < step.pages.size(); ++i) step.pages.set(i, 0.0F);
      const cuda::KvPage page{256, step.s.page_tokens};
      const std::int64_t first = step.tables.pages[0] * step.pages.view().dim(1);
      for (std::int64_t i = 0; i < 256; ++i) {
        step.pages.set(first + page.value_offset() + i,
                       e4m3_to_float(static_cast<std::uint8_t>(i)));
      }
      const TestTensor answer = attend(step);
      for (std::int64_t i = 0; i < 256; ++i) {
        CAPTURE(i);
        const float expected = e4m3_to_float(static_cast<std::uint8_t>(i));
        CHECK(std::isnan(answer.get(i)) == std::isnan(expected));
        if (!std::isnan(expected)) CHECK(answer.get(i) == expected);
      }
    }
  }
}

}  // namespace
