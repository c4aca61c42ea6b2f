#include "kernels/ops/pack_snapshot.h"

#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/support.h"

namespace cuda_pack_snapshot_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

using Bytes = std::vector<std::byte>;

struct Shape {
  std::int64_t rows, columns;
  std::size_t window_bytes, alignment;
};

/// Bytes on the device that live as long as this object.
class DeviceBytes {
 public:
  explicit DeviceBytes(const Bytes& bytes) : size_(bytes.size()) {
    cuda::check(cudaMalloc(&data_, size_), "cudaMalloc");
    copy_to_card(data_, bytes);
  }
  ~DeviceBytes() { cudaFree(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  operator Tensor() const {  // NOLINT: ops are called with these
    return {data_, DType::u8, {static_cast<std::int64_t>(size_)}};
  }
  Bytes fetch() const {
    Bytes bytes(size_);
    cuda::check(cudaMemcpy(bytes.data(), data_, size_, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return bytes;
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_;
};

Tensor view(Bytes& bytes) {
  return {bytes.data(), DType::u8, {static_cast<std::int64_t>(bytes.size())}};
}

/// A slot and its packed snapshot, with gaps that must not be touched.
struct Snapshot {
  Snapshot(DType type, const std::vector<Shape>& shapes, unsigned seed) : dtype(type) {
    std::size_t slot_end = 64, packed_end = 64;
    const auto take = [](std::size_t& end, std::size_t bytes, std::size_t alignment) {
      const std::size_t at = (end + alignment - 1) / alignment * alignment;
      end = at + bytes + 4;
      return at;
    };
    for (const Shape& s : shapes) {
      const auto values = static_cast<std::size_t>(s.rows * s.columns);
      const std::size_t element = std::max(s.alignment, size_of(dtype));
      pieces.push_back({.slot_window = take(slot_end, s.window_bytes, s.alignment),
                        .slot_state = take(slot_end, values * size_of(dtype), element),
                        .packed_window = take(packed_end, s.window_bytes, s.alignment),
                        .packed_scales = take(packed_end, static_cast<std::size_t>(s.rows) * 2, 2),
                        .packed_values = take(packed_end, values, s.alignment),
                        .window_bytes = s.window_bytes,
                        .rows = s.rows,
                        .columns = s.columns});
    }
    slot.assign(slot_end + 64, std::byte{0xa5});
    packed.assign(packed_end + 64, std::byte{0xa5});
    fill(seed);
  }

  /// Rows of all magnitudes, denormal ones and lost ones among them.
  void fill(unsigned seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    for (const SnapshotPiece& piece : pieces) {
      for (std::size_t i = 0; i < piece.window_bytes; ++i) {
        slot[piece.slot_window + i] = static_cast<std::byte>(engine());
      }
      for (std::int64_t i = 0; i < piece.rows * piece.columns; ++i) {
        const auto row = static_cast<int>(i / piece.columns);
        float value = std::ldexp(normal(engine), row * 7 % 250 - 135);
        if (engine() % 9 == 0) value = 0.0F;
        if (row % 11 == 5 && i % piece.columns == 1) value = NAN;
        if (row % 13 == 7 && i % piece.columns == 0) value = -0x1p127F;
        set(piece, i, value);
      }
    }
  }
  void set(const SnapshotPiece& piece, std::int64_t i, float value) {
    std::byte* const at = slot.data() + piece.slot_state;
    const bf16 rounded = to_bf16(value);
    if (dtype == DType::f32) {
      std::memcpy(at + 4 * i, &value, 4);
    } else {
      std::memcpy(at + 2 * i, &rounded, 2);
    }
  }

  DType dtype;
  std::vector<SnapshotPiece> pieces;
  Bytes slot, packed;
};

const std::vector<Shape> few = {
    {40, 128, 3 * 64 * 2, 16}, {3, 7, 5, 2}, {33, 16, 1001, 1}, {5, 100, 64, 16}, {2, 256, 0, 4}};

void check_snapshot(Snapshot s) {
  const DeviceBytes slot(s.slot), packed(s.packed);
  const Bytes old_slot = s.slot;
  Queue plain = test_queue(Isa::plain);
  cuda::Stream stream;
  pack_snapshot(plain, {s.pieces, s.dtype, view(s.slot), view(s.packed)});
  const cuda::Graph graph(stream, [&] {
    cuda::pack_snapshot(stream, {s.pieces, s.dtype, slot, packed});
  });
  graph.replay(stream);
  stream.wait();
  CHECK(packed.fetch() == s.packed);
  CHECK(slot.fetch() == old_slot);

  unpack_snapshot(plain, {s.pieces, s.dtype, view(s.packed), view(s.slot)});
  cuda::unpack_snapshot(stream, {s.pieces, s.dtype, packed, slot});
  stream.wait();
  CHECK(slot.fetch() == s.slot);
  CHECK(packed.fetch() == s.packed);
}

TEST_SUITE("cuda/pack_snapshot") {
  TEST_CASE("packs and unpacks to the plain loop's bytes, and touches no other") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DType dtype : {DType::f32, DType::bf16}) check_snapshot({dtype, few, 3});
    });
  }

  TEST_CASE("more pieces than a launch takes") {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      check_snapshot({dtype, std::vector<Shape>(101, {2, 32, 12, 16}), 4});
    }
  }
}

}  // namespace

}  // namespace cuda_pack_snapshot_test
