#include "tests/cuda_emulator/driver.h"

#include <cstdlib>
#include <memory>

#include "core/base/error.h"
#include "kernels/cuda/driver.h"

namespace hyb::kernels::cuda {
namespace {

using cublaslt::Object, cublaslt::Status;

struct RecordedLayout {
  std::int64_t rows, columns;
};

template <typename T>
Status destroy_as(Object object) {
  const std::unique_ptr<T> ended(static_cast<T*>(object));
  return cublaslt::success;
}
Status take_attribute(Object, int, const void*, std::size_t) { return cublaslt::success; }

/// A library that takes every product and does none: its objects are matrices' sizes.
CublasLtTable recording_table() {
  CublasLtTable table;
  table.get_version = [] { return std::size_t{130000}; };
  const auto create = [](Object* object, auto...) {
    *object = std::make_unique<int>().release();
    return cublaslt::success;
  };
  table.create = create;
  table.destroy = destroy_as<int>;
  table.matmul_desc_create = create;
  table.matmul_desc_destroy = destroy_as<int>;
  table.matmul_desc_set_attribute = take_attribute;
  table.matrix_layout_create = [](Object* layout, int, std::uint64_t rows, std::uint64_t columns,
                                  std::int64_t) {
    auto made = std::make_unique<RecordedLayout>();
    *made = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
    *layout = made.release();
    return cublaslt::success;
  };
  table.matrix_layout_destroy = destroy_as<RecordedLayout>;
  table.matmul_preference_create = create;
  table.matmul_preference_destroy = destroy_as<int>;
  table.matmul_preference_set_attribute = take_attribute;
  table.matmul_algo_get_heuristic = [](Object, Object, Object, Object, Object, Object, Object, int,
                                       cublaslt::HeuristicResult* results, int* found) {
    results[0] = {};
    *found = 1;
    return cublaslt::success;
  };
  table.matmul = [](Object, Object, const void*, const void*, Object a, const void*, Object b,
                    const void*, const void*, Object, void*, Object, const cublaslt::Algorithm*,
                    void*, std::size_t, CUstream_st*) {
    const auto& weight = *static_cast<const RecordedLayout*>(a);
    const auto& x = *static_cast<const RecordedLayout*>(b);
    const std::lock_guard lock(emulator::machine().mutex);
    emulator::machine().record({.product = {x.columns, weight.columns, weight.rows}});
    return cublaslt::success;
  };
  return table;
}

/// HYB_EMULATED_UNIT, in bytes; a card's are of 2097152.
std::size_t unit_bytes() {
  constexpr std::size_t page = 4096;
  const char* const wanted = std::getenv("HYB_EMULATED_UNIT");
  if (wanted == nullptr) return page;
  const auto bytes = static_cast<std::size_t>(std::strtoull(wanted, nullptr, 10));
  if (bytes == 0 || bytes % page != 0) {
    throw Error(ErrorKind::usage, "HYB_EMULATED_UNIT is a number of bytes, a multiple of 4096");
  }
  return bytes;
}

}  // namespace

/// Of a driver that lives as long as the process. Its units are small, so that the pools of tiny
/// models can be cut into superblocks, unless the environment says otherwise.
DriverTable driver() {
  static testing::FakeDriver emulated(unit_bytes());
  return emulator::driver_table();
}

/// This machine's would query this machine's card. Where work is recorded only, one that takes
/// every product, as a card's does.
CublasLt matrix_library() {
  if (emulator::is_recording_only()) return {.table = recording_table(), .text = "recorded"};
  return {.table = {}, .text = "none: the card is emulated"};
}

}  // namespace hyb::kernels::cuda
