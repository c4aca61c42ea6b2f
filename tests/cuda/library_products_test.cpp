#include "kernels/linear/library_products.h"

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "kernels/cuda/routes.h"
#include "tests/cuda/fake_cublaslt.h"
#include "tests/cuda/support.h"
#include "tests/cuda/weights.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;
using fake_cublaslt::record;

namespace {

constexpr std::int64_t outputs = 24, inner = 40;
constexpr DType bf = DType::bf16;

void open_fake(cuda::Stream& stream) {
  const CublasLtTable table = fake_cublaslt::table();
  stream.use(std::make_unique<LibraryProducts>(table, Buffer(Device::cuda, 4096)), "a fake");
}

struct Inputs {
  Inputs(std::int64_t tokens, DType y_type)
      : x(random_tensor(bf, {tokens, inner}, 1, 1.0F, {8, 0})),
        before(random_tensor(y_type, {tokens, outputs}, 2, 1.0F, {16, 8})),
        weight(bf, outputs, inner, random_tensor(bf, {outputs, inner}, 3).packed()),
        on_x(x),
        on_y(before) {}

  TestTensor x, before;
  TestWeight weight;
  DeviceTensor on_x, on_y;
};

/// linear with and without the library: within what two orders of sums and one rounding leave.
void check_linear(std::int64_t tokens, DType y_type, bool add) {
  CAPTURE(tokens);
  const Inputs in(tokens, y_type);
  const DeviceTensor other(in.before);
  cuda::Stream with, without;
  open_fake(with);
  Linear op = {.x = in.on_x, .weight = &in.weight.device, .y = in.on_y, .scale = 0.3F, .add = add};
  cuda::linear(with, op);
  op.y = other;
  cuda::linear(without, op);
  with.wait();
  without.wait();
  CHECK(record().products == (tokens > 64 ? 1 : 0));
  const TestTensor answer = in.on_y.fetch();
  CHECK(answer.guards_intact());
  CHECK(largest_error(answer, other.fetch()) <= (y_type == bf ? 0.0079 : 1e-5));
}

TEST_SUITE("cuda/library_products") {
  TEST_CASE("a product of many rows is the library's, with its layouts, scale and addition") {
    for (const DType type : {bf, DType::f32}) {
      for (const bool add : {false, true}) {
        check_linear(64, type, add);
        check_linear(65, type, add);
        check_linear(131, type, add);
      }
    }
    CHECK(record().objects == 0);
  }

  TEST_CASE("an activation follows the library's product") {
    const std::int64_t tokens = 70;
    const Inputs in(tokens, bf);
    const TestTensor y(bf, {tokens, outputs / 2}), product(bf, {tokens, outputs});
    const DeviceTensor on_y(y), other(y), on_product(product);
    cuda::Stream with, without;
    open_fake(with);
    Project op = {.x = in.on_x,
                  .weight = &in.weight.device,
                  .y = on_y,
                  .activation = Activation::silu_gated,
                  .product = on_product};
    cuda::project(with, op);
    op.y = other;
    cuda::project(without, op);
    with.wait();
    without.wait();
    CHECK(record().products == 1);
    CHECK(largest_error(on_y.fetch(), other.fetch()) <= 0.02);
  }

  TEST_CASE("an algorithm is asked for once per shape, by what is given and no more") {
    cuda::Stream stream;
    open_fake(stream);
    for (const std::int64_t tokens : {100, 128, 70, 129}) {
      const Inputs in(tokens, bf);
      cuda::linear(stream, {.x = in.on_x, .weight = &in.weight.device, .y = in.on_y});
      stream.wait();
      CHECK(record().heuristics == (tokens == 129 ? 2 : 1));
      CHECK(record().tokens == (tokens == 129 ? 256 : 128));
    }
    CHECK(record().products == 4);
    const fake_cublaslt::Preference& asked = record().preference;
    CHECK(asked.workspace_bytes == 4096);
    CHECK(asked.schemes == cublaslt::reduction_in_f32);
    for (const std::uint32_t alignment : asked.alignments) CHECK(alignment == 16);
  }

  TEST_CASE("what the library does not take goes to the kernels here") {
    const Inputs in(65, bf);
    const auto error_of = [&](cublaslt::Status heuristic, cublaslt::Status matmul) {
      cuda::Stream stream;
      open_fake(stream);
      record().heuristic_status = heuristic;
      record().matmul_status = matmul;
      const DeviceTensor on_y(in.before), other(in.before);
      const Linear op = {.x = in.on_x, .weight = &in.weight.device, .y = on_y};
      try {
        cuda::linear(stream, op);
      } catch (const Error& error) {
        return std::string(error.what());
      }
      stream.wait();
      cuda::Stream without;
      Linear same = op;
      same.y = other;
      cuda::linear(without, same);
      without.wait();
      CHECK(same_bytes(on_y.fetch(), other.fetch()));
      return std::string();
    };
    CHECK(error_of(cublaslt::not_supported, cublaslt::success) == "");
    CHECK(error_of(cublaslt::success, cublaslt::not_supported) == "");
    CHECK(error_of(cublaslt::success, 14).find("status 14") != std::string::npos);
    CHECK(error_of(14, cublaslt::success).find("status 14") != std::string::npos);
  }

  TEST_CASE("batch-invariant and unaligned products are never the library's") {
    cuda::Stream stream;
    open_fake(stream);
    const Inputs in(70, bf);
    Linear op = {.x = in.on_x, .weight = &in.weight.device, .y = in.on_y};
    stream.set_batch_invariant(true);
    cuda::linear(stream, op);
    stream.set_batch_invariant(false);
    const TestTensor odd(bf, {70, outputs}, {1, 0});
    const DeviceTensor on_odd(odd);
    op.y = on_odd;
    cuda::linear(stream, op);
    stream.wait();
    CHECK(record().products == 0);
  }
}

}  // namespace
