#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/routes.h"
#include "kernels/floats.h"
#include "kernels/linear/library_products.h"
#include "tests/cuda/support.h"

/// A library for CublasLtTable that multiplies on the CPU, in columns and by its layouts, as
/// cuBLASLt does; it assumes nothing that it is not given.
namespace hyb::kernels::testing::fake_cublaslt {

using cublaslt::Object;
using cublaslt::Status;

constexpr std::uint64_t own_algorithm = 0x68796221;

struct Description {
  int compute_type, scale_type;
  int transpose_a = 0, transpose_b = 0;
};
struct Layout {
  int type;
  std::int64_t rows, columns, stride;
};
struct Preference {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t schemes = 7;
  std::uint32_t alignments[4] = {256, 256, 256, 256};
};
/// The requests, and the answers to give.
struct Record {
  int heuristics = 0, products = 0, objects = 0;
  std::int64_t tokens = 0;  ///< of the last heuristic
  Preference preference;    ///< of the last heuristic
  Status heuristic_status = cublaslt::success, matmul_status = cublaslt::success;
  bool is_exact = false;  ///< algorithms work for the count of tokens of the request alone
};
inline Record& record() {
  static Record all;
  return all;
}

template <typename T, typename... Arguments>
Status create(Object* object, Arguments... arguments) {
  *object = std::make_unique<T>(T{arguments...}).release();
  ++record().objects;
  return cublaslt::success;
}
template <typename T>
Status destroy(Object object) {
  const std::unique_ptr<T> owned(static_cast<T*>(object));
  --record().objects;
  return cublaslt::success;
}
template <typename T>
T& as(Object object) {
  return *static_cast<T*>(object);
}

inline Status set_desc(Object desc, int attribute, const void* value, std::size_t bytes) {
  REQUIRE(bytes == sizeof(int));
  if (attribute == cublaslt::desc_transpose_a) {
    as<Description>(desc).transpose_a = *static_cast<const int*>(value);
  } else if (attribute == cublaslt::desc_transpose_b) {
    as<Description>(desc).transpose_b = *static_cast<const int*>(value);
  } else {
    return cublaslt::invalid_value;
  }
  return cublaslt::success;
}
inline Status set_preference(Object object, int attribute, const void* value, std::size_t bytes) {
  auto& preference = as<Preference>(object);
  if (attribute == cublaslt::pref_workspace_bytes_max) {
    REQUIRE(bytes == sizeof(std::uint64_t));
    preference.workspace_bytes = *static_cast<const std::uint64_t*>(value);
    return cublaslt::success;
  }
  REQUIRE(bytes == sizeof(std::uint32_t));
  const auto number = *static_cast<const std::uint32_t*>(value);
  if (attribute == cublaslt::pref_reduction_schemes) {
    preference.schemes = number;
  } else {
    REQUIRE(attribute >= cublaslt::pref_alignment_a);
    REQUIRE(attribute < cublaslt::pref_alignment_a + 4);
    preference.alignments[attribute - cublaslt::pref_alignment_a] = number;
  }
  return cublaslt::success;
}

inline Status heuristic(Object, Object, Object, Object b, Object, Object, Object preference,
                        int wanted, cublaslt::HeuristicResult* results, int* found) {
  ++record().heuristics;
  record().tokens = as<Layout>(b).columns;
  record().preference = as<Preference>(preference);
  *found = 0;
  if (record().heuristic_status != cublaslt::success) return record().heuristic_status;
  REQUIRE(wanted == 1);
  *found = 1;
  results[0] = {};
  results[0].algorithm.data[7] = own_algorithm;
  results[0].algorithm.data[6] = static_cast<std::uint64_t>(record().tokens);
  results[0].workspace_bytes = 1000;
  return cublaslt::success;
}

/// A matrix in columns, here.
class Matrix {
 public:
  Matrix(const Layout& layout, const void* device) : layout_(layout) {
    REQUIRE(layout.rows <= layout.stride);
    const auto last = static_cast<std::size_t>((layout.columns - 1) * layout.stride + layout.rows);
    bytes_.resize(last * (layout.type == cublaslt::type_bf16 ? 2 : 4));
    REQUIRE(cudaMemcpy(bytes_.data(), device, bytes_.size(), cudaMemcpyDeviceToHost) ==
            cudaSuccess);
  }
  double get(std::int64_t row, std::int64_t column) const {
    const std::int64_t i = column * layout_.stride + row;
    if (layout_.type == cublaslt::type_bf16) return to_float(as<bf16>()[i]);
    return as<float>()[i];
  }
  void set(std::int64_t row, std::int64_t column, float value) {
    const std::int64_t i = column * layout_.stride + row;
    if (layout_.type == cublaslt::type_bf16) {
      const_cast<bf16*>(as<bf16>())[i] = to_bf16(value);
    } else {
      const_cast<float*>(as<float>())[i] = value;
    }
  }
  void write(void* device) const { copy_to_card(device, bytes_); }

 private:
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes_.data());
  }
  Layout layout_;
  std::vector<std::byte> bytes_;
};

inline Status matmul(Object, Object desc, const void* alpha, const void* a, Object a_layout,
                     const void* b, Object b_layout, const void* beta, const void* c,
                     Object c_layout, void* d, Object d_layout,
                     const cublaslt::Algorithm* algorithm, void* workspace,
                     std::size_t workspace_bytes, CUstream_st* stream) {
  if (record().matmul_status != cublaslt::success) return record().matmul_status;
  const auto algorithm_tokens = static_cast<std::int64_t>(algorithm->data[6]);
  if (record().is_exact && as<Layout>(b_layout).columns != algorithm_tokens) {
    return cublaslt::not_supported;
  }
  ++record().products;
  const auto& how = as<Description>(desc);
  REQUIRE(how.compute_type == cublaslt::compute_f32);
  REQUIRE(how.scale_type == cublaslt::type_f32);
  REQUIRE(algorithm->data[7] == own_algorithm);
  REQUIRE(workspace != nullptr);
  REQUIRE(workspace_bytes >= 1000);
  REQUIRE(c == d);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  const Matrix left(as<Layout>(a_layout), a), right(as<Layout>(b_layout), b);
  Matrix answer(as<Layout>(d_layout), c);
  const Layout &out = as<Layout>(d_layout), &from = as<Layout>(a_layout);
  REQUIRE(as<Layout>(c_layout).stride == out.stride);
  const std::int64_t inner = how.transpose_a == 1 ? from.rows : from.columns;
  REQUIRE((how.transpose_b == 1 ? as<Layout>(b_layout).columns : as<Layout>(b_layout).rows) ==
          inner);
  for (std::int64_t i = 0; i < out.rows; ++i) {
    for (std::int64_t j = 0; j < out.columns; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < inner; ++k) {
        sum += (how.transpose_a == 1 ? left.get(k, i) : left.get(i, k)) *
               (how.transpose_b == 1 ? right.get(j, k) : right.get(k, j));
      }
      const double before = *static_cast<const float*>(beta) == 0 ? 0.0 : answer.get(i, j);
      answer.set(i, j,
                 static_cast<float>(*static_cast<const float*>(alpha) * sum +
                                    *static_cast<const float*>(beta) * before));
    }
  }
  answer.write(d);
  return cublaslt::success;
}

inline CublasLtTable table() {
  record() = {};
  CublasLtTable all;
  all.get_version = [] { return std::size_t{130100}; };
  all.create = create<int>;
  all.destroy = destroy<int>;
  all.matmul_desc_create = create<Description, int, int>;
  all.matmul_desc_destroy = destroy<Description>;
  all.matmul_desc_set_attribute = set_desc;
  all.matrix_layout_create = [](Object* object, int type, std::uint64_t rows, std::uint64_t columns,
                                std::int64_t stride) {
    return create<Layout>(object, type, static_cast<std::int64_t>(rows),
                          static_cast<std::int64_t>(columns), stride);
  };
  all.matrix_layout_destroy = destroy<Layout>;
  all.matmul_preference_create = create<Preference>;
  all.matmul_preference_destroy = destroy<Preference>;
  all.matmul_preference_set_attribute = set_preference;
  all.matmul_algo_get_heuristic = heuristic;
  all.matmul = matmul;
  return all;
}

}  // namespace hyb::kernels::testing::fake_cublaslt

namespace library_products_test {

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
  Inputs(std::int64_t tokens, DType y_type, std::int64_t rows = outputs,
         std::int64_t columns = inner)
      : x(random_tensor(bf, {tokens, columns}, 1, 1.0F, {8, 0})),
        before(random_tensor(y_type, {tokens, rows}, 2, 1.0F, {16, 8})),
        weight(bf, rows, columns, random_tensor(bf, {rows, columns}, 3).packed()),
        on_x(x),
        on_y(before) {}

  TestTensor x, before;
  TestWeight weight;
  DeviceTensor on_x, on_y;
};

/// linear with and without the library: within what two orders of sums and one rounding leave.
void check_linear(cuda::Stream& with, Inputs& in, bool add) {
  const auto summands = static_cast<double>(in.x.view().dim(1));
  const bool is_rounded = in.before.view().dtype == bf;
  CAPTURE(in.x.view().dim(0));
  CAPTURE(summands);
  CAPTURE(is_rounded);
  CAPTURE(add);
  const DeviceTensor other(in.before);
  in.on_y.set(in.before);
  cuda::Stream without;
  Linear op = {.x = in.on_x, .weight = &in.weight.device, .y = in.on_y, .scale = 0.3F, .add = add};
  cuda::linear(with, op);
  op.y = other;
  cuda::linear(without, op);
  with.wait();
  without.wait();
  const TestTensor answer = in.on_y.fetch();
  CHECK(answer.guards_intact());
  CHECK(largest_error(answer, other.fetch()) <= (is_rounded ? 0.0078 : 0.0) + summands * 0x1p-22);
}

TEST_SUITE("cuda/library_products") {
  TEST_CASE("a product of many rows is the library's, with its layouts, scale and addition") {
    for (const DType type : {bf, DType::f32}) {
      for (const std::int64_t tokens : {64, 65, 131}) {
        Inputs in(tokens, type);
        for (const bool add : {false, true}) {
          cuda::Stream with;
          open_fake(with);
          check_linear(with, in, add);
          CHECK(record().products == (tokens > 64 ? 1 : 0));
        }
      }
    }
    CHECK(record().objects == 0);
  }

  TEST_CASE("this machine's library and the kernels here agree, from 65 to 8192 rows") {
    if (const CublasLt library = cuda::matrix_library(); !library.is_there()) {
      MESSAGE("not tested, no cuBLASLt: " << library.text);
      return;
    }
    struct Size {
      std::int64_t tokens, outputs, inner;
    };
    Queue queue(Device::cuda, {.threads = 1, .isa = {}});
    REQUIRE(queue.stream().products() != nullptr);
    for (const Size& size : {Size{65, 1024, 512}, Size{128, 264, 4096}, Size{1000, 264, 4096},
                             Size{1025, 2048, 64}, Size{8192, 1024, 512}}) {
      for (const DType type : {bf, DType::f32}) {
        Inputs in(size.tokens, type, size.outputs, size.inner);
        for (const bool add : {false, true}) check_linear(queue.stream(), in, add);
      }
    }
    CHECK(queue.stream().products()->refused() == 0);
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
                  .activation = gated_silu,
                  .product = on_product};
    cuda::project(with, op);
    op.y = other;
    cuda::project(without, op);
    with.wait();
    without.wait();
    CHECK(record().products == 1);
    CHECK(largest_error(on_y.fetch(), other.fetch()) <= 0.02);
  }

  TEST_CASE("an algorithm is requested once per shape, with what is given and no more") {
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

  TEST_CASE(
      "an algorithm that is refused for the exact count is requested for that; refusals count") {
    const Inputs in(100, bf);
    cuda::Stream stream;
    open_fake(stream);
    record().is_exact = true;
    const Linear op = {.x = in.on_x, .weight = &in.weight.device, .y = in.on_y};
    for (int i = 0; i < 2; ++i) cuda::linear(stream, op);
    CHECK(record().products == 2);
    CHECK(record().heuristics == 2);
    CHECK(record().tokens == 100);
    CHECK(stream.products()->refused() == 0);
    record().matmul_status = cublaslt::not_supported;
    for (int i = 0; i < 3; ++i) cuda::linear(stream, op);
    stream.wait();
    CHECK(stream.products()->refused() == 3);
    CHECK(record().heuristics == 2);
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
    for (const cublaslt::Status status : {1, 3, 7, 8, 11, 14}) {
      CAPTURE(status);
      CHECK(error_of(status, cublaslt::success) == "");
      CHECK(error_of(cublaslt::success, status) == "");
    }
    const cublaslt::Status failed = cublaslt::execution_failed;  // of the card: nothing runs then
    CHECK(error_of(cublaslt::success, failed).find("status 13") != std::string::npos);
    CHECK(error_of(failed, cublaslt::success).find("status 13") != std::string::npos);
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

}  // namespace library_products_test
