#include "kernels/ops/pack_snapshot.h"

#include <doctest/doctest.h>

#include "tests/kernels/support.h"

namespace ops_pack_snapshot_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Shape {
  std::int64_t rows, columns;
  std::size_t window_bytes;
};

using Bytes = std::vector<std::byte>;

/// A slot and its packed snapshot, with gaps between the pieces and guards around.
struct Fixture {
  Fixture(DType type, const std::vector<Shape>& shapes) : dtype(type) {
    std::size_t slot_end = 64, packed_end = 64;
    const auto take = [](std::size_t& end, std::size_t bytes) {
      const std::size_t at = end;
      end = (at + bytes + 3) / 4 * 4 + 8;
      return at;
    };
    for (const Shape& s : shapes) {
      const auto values = static_cast<std::size_t>(s.rows * s.columns);
      pieces.push_back({.slot_window = take(slot_end, s.window_bytes),
                        .slot_state = take(slot_end, values * size_of(dtype)),
                        .packed_window = take(packed_end, s.window_bytes),
                        .packed_scales = take(packed_end, static_cast<std::size_t>(s.rows) * 2),
                        .packed_values = take(packed_end, values),
                        .window_bytes = s.window_bytes,
                        .rows = s.rows,
                        .columns = s.columns});
    }
    slot.assign(slot_end + 64, guard);
    packed.assign(packed_end + 64, guard);
  }

  static Tensor bytes(Bytes& all) {
    return {all.data(), DType::u8, {static_cast<std::int64_t>(all.size())}};
  }
  void pack(Queue& queue) { pack_snapshot(queue, {pieces, dtype, bytes(slot), bytes(packed)}); }
  void unpack(Queue& queue) { unpack_snapshot(queue, {pieces, dtype, bytes(packed), bytes(slot)}); }

  float get(const SnapshotPiece& piece, std::int64_t i) const {
    const std::byte* const at = slot.data() + piece.slot_state;
    if (dtype == DType::f32) {
      float value;
      std::memcpy(&value, at + 4 * i, 4);
      return value;
    }
    bf16 value;
    std::memcpy(&value, at + 2 * i, 2);
    return to_float(value);
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
  float scale(const SnapshotPiece& piece, std::int64_t row) const {
    bf16 value;
    std::memcpy(&value, packed.data() + piece.packed_scales + 2 * row, 2);
    return to_float(value);
  }
  int value(const SnapshotPiece& piece, std::int64_t i) const {
    return static_cast<std::int8_t>(packed[piece.packed_values + static_cast<std::size_t>(i)]);
  }

  /// Rows of very different magnitudes, some elements zero; windows of random bytes.
  void fill(unsigned seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    for (const SnapshotPiece& piece : pieces) {
      for (std::size_t i = 0; i < piece.window_bytes; ++i) {
        slot[piece.slot_window + i] = static_cast<std::byte>(engine());
      }
      for (std::int64_t i = 0; i < piece.rows * piece.columns; ++i) {
        const auto power = static_cast<int>(i / piece.columns * 7 % 180) - 90;
        set(piece, i, engine() % 9 == 0 ? 0.0F : std::ldexp(normal(engine), power));
      }
    }
  }

  /// The bytes that belong to no piece.
  Bytes outside(bool of_slot) const {
    Bytes all = of_slot ? slot : packed;
    const auto clear = [&](std::size_t at, std::size_t size) {
      std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(at), size, std::byte{});
    };
    for (const SnapshotPiece& p : pieces) {
      const auto values = static_cast<std::size_t>(p.rows * p.columns);
      clear(of_slot ? p.slot_window : p.packed_window, p.window_bytes);
      clear(of_slot ? p.slot_state : p.packed_values, of_slot ? values * size_of(dtype) : values);
      if (!of_slot) clear(p.packed_scales, static_cast<std::size_t>(p.rows) * 2);
    }
    return all;
  }

  static constexpr std::byte guard{0xa5};
  DType dtype;
  std::vector<SnapshotPiece> pieces;
  Bytes slot, packed;
};

const std::vector<Shape> odd = {{1, 1, 0},       {3, 7, 5},     {0, 0, 31},
                                {257, 16, 1001}, {40, 100, 64}, {0, 0, 2048}};
const std::vector<Shape> large = {{48 * 32, 128, 3 * 1792 * 2}, {300, 256, 777}, {520, 33, 1}};

Bytes part_of(const Bytes& all, std::size_t at, std::size_t size) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
  return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}

}  // namespace

TEST_SUITE("kernels/ops/pack_snapshot") {
  TEST_CASE("no element is further off than half a step, and the step is as small as promised") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const auto& shapes : {odd, large}) {
          CAPTURE(name_of(isa));
          Queue queue = test_queue(isa, 3);
          Fixture f(dtype, shapes);
          f.fill(11);
          const Fixture before = f;
          f.pack(queue);
          CHECK(f.slot == before.slot);
          CHECK(f.outside(false) == before.outside(false));
          std::fill(f.slot.begin(), f.slot.end(), std::byte{0x5a});
          const Bytes untouched = f.outside(true);
          const Bytes packed = f.packed;
          f.unpack(queue);
          CHECK(f.packed == packed);
          CHECK(f.outside(true) == untouched);
          for (const SnapshotPiece& piece : f.pieces) {
            CHECK(part_of(f.slot, piece.slot_window, piece.window_bytes) ==
                  part_of(before.slot, piece.slot_window, piece.window_bytes));
            for (std::int64_t row = 0; row < piece.rows; ++row) {
              const double scale = f.scale(piece, row);
              double largest = 0;
              for (std::int64_t n = 0; n < piece.columns; ++n) {
                const double x = before.get(piece, row * piece.columns + n);
                const double back = f.get(piece, row * piece.columns + n);
                const double rounding = dtype == DType::bf16 ? std::fabs(back) * 0x1p-8 : 0.0;
                REQUIRE(std::fabs(x - back) <= scale / 2 + rounding);
                if (x == 0) REQUIRE(back == 0);
                largest = std::max(largest, std::fabs(x));
              }
              REQUIRE(scale >= 0x1p-126);
              REQUIRE(scale <= std::max(largest / 127 * (1 + 0x1p-7 + 0x1p-20), 0x1p-126));
            }
          }
        }
      }
    }
  }

  TEST_CASE("bytes depend neither on the instruction set nor on the threads") {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const auto& shapes : {odd, large}) {
        Fixture plain(dtype, shapes);
        plain.fill(5);
        Queue one = test_queue(Isa::plain);
        plain.pack(one);
        Fixture back = plain;
        back.unpack(one);
        for (const Isa isa : available_isas()) {
          for (const int threads : {1, 2, 3}) {
            CAPTURE(name_of(isa));
            Queue queue = test_queue(isa, threads);
            Fixture f(dtype, shapes);
            f.fill(5);
            f.pack(queue);
            CHECK(f.packed == plain.packed);
            f.unpack(queue);
            CHECK(f.slot == back.slot);
          }
        }
      }
    }
  }

  TEST_CASE("ties go to the even number, the largest to 127") {
    for (const Isa isa : available_isas()) {
      CAPTURE(name_of(isa));
      Queue queue = test_queue(isa);
      Fixture f(DType::f32, {{1, 11, 0}});
      const float x[] = {127.0F, -127.0F, 0.5F,   1.5F,  2.5F,  -0.5F,
                         -1.5F,  -2.5F,   125.5F, -0.0F, 126.5F};
      const int want[] = {127, -127, 0, 2, 2, 0, -2, -2, 126, 0, 126};
      for (int i = 0; i < 11; ++i) f.set(f.pieces[0], i, x[i] * 0x1p-40F);
      f.pack(queue);
      CHECK(f.scale(f.pieces[0], 0) == 0x1p-40F);
      for (int i = 0; i < 11; ++i) CHECK(f.value(f.pieces[0], i) == want[i]);
    }
  }

  TEST_CASE("a row with NaN or infinity comes back as NaN, its neighbours do not") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const float bad : {NAN, -NAN, INFINITY, -INFINITY, 0x1p127F, -0x1.8p127F}) {
          for (const std::int64_t at : {20, 36, 39}) {  // first, in a whole vector, in the tail
            CAPTURE(name_of(isa));
            Queue queue = test_queue(isa);
            Fixture f(dtype, {{3, 20, 4}});
            f.fill(1);
            f.set(f.pieces[0], at, bad);
            f.pack(queue);
            for (int i = 20; i < 40; ++i) CHECK(f.value(f.pieces[0], i) == 0);
            f.unpack(queue);
            for (int i = 0; i < 60; ++i) {
              CHECK(std::isnan(f.get(f.pieces[0], i)) == (i >= 20 && i < 40));
            }
          }
        }
      }
    }
  }

  TEST_CASE("the ends of the range: the largest finite rows, tiny rows, rows of zeros") {
    for (const Isa isa : available_isas()) {
      CAPTURE(name_of(isa));
      Queue queue = test_queue(isa);
      Fixture f(DType::f32, {{4, 19, 0}});
      const SnapshotPiece& piece = f.pieces[0];
      const float top = std::nextafter(0x1p127F, 0.0F);
      for (int i = 0; i < 19; ++i) {
        f.set(piece, i, i % 2 == 0 ? top : -top);
        f.set(piece, 19 + i, 0x1p-126F * static_cast<float>(i));
        f.set(piece, 38 + i, i % 2 == 0 ? 0.0F : -0.0F);
        f.set(piece, 57 + i, 0x1p-130F);
      }
      f.pack(queue);
      f.unpack(queue);
      for (int i = 0; i < 19; ++i) {
        CHECK(std::isfinite(f.get(piece, i)));
        CHECK(f.get(piece, i) == doctest::Approx(i % 2 == 0 ? top : -top).epsilon(0.004));
        CHECK(f.get(piece, 19 + i) == 0x1p-126F * static_cast<float>(i));
        CHECK(f.get(piece, 38 + i) == 0.0F);
        CHECK(f.get(piece, 57 + i) == 0.0F);
      }
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    Fixture f(DType::f32, {{3, 8, 4}});
    CHECK_THROWS_WITH_AS(
        pack_snapshot(queue, {f.pieces, DType::f16, f.bytes(f.slot), f.bytes(f.packed)}),
        "pack_snapshot: the state is f32 or bf16, got 2", Error);
    Bytes small(171);
    CHECK_THROWS_WITH_AS(
        unpack_snapshot(queue, {f.pieces, DType::f32, f.bytes(f.packed), f.bytes(small)}),
        "unpack_snapshot: a piece lies within its bytes, got 172", Error);
    f.pieces[0].slot_state += 1;
    CHECK_THROWS_AS(f.pack(queue), Error);
  }
}

}  // namespace ops_pack_snapshot_test
