#include "core/replay/marconi_shape.h"

#include <doctest/doctest.h>

using namespace hyb;

TEST_SUITE("core/replay/marconi_shape") {
  TEST_CASE("the paper's own figures") {
    const ReplayShape shape = marconi_shape({}, 1e12);
    CHECK(shape.kv_bytes_per_token == 64 * 1024);
    CHECK(shape.state_bytes == 26'787'840);
    // A sequence of 10,000 tokens with a state per 16: 17.4 GB, 3.3 times a transformer's.
    const double bytes = 10000.0 * static_cast<double>(shape.kv_bytes_per_token) +
                         10000.0 / 16 * static_cast<double>(shape.state_bytes);
    CHECK(bytes / 1e9 == doctest::Approx(17.4).epsilon(0.002));
    const double transformer = 10000.0 * static_cast<double>(shape.transformer_kv_bytes_per_token);
    CHECK(bytes / transformer == doctest::Approx(3.3).epsilon(0.01));
    CHECK(100.0 * static_cast<double>(shape.conv_bytes) / static_cast<double>(shape.state_bytes) ==
          doctest::Approx(6.06).epsilon(0.001));
  }

  TEST_CASE("costs add up over layers, and seconds follow FLOPs") {
    const double d = 64, n = 16, l = 1000;
    const auto flops = [&](MarconiModel model) {
      model.width = 64;
      model.state_dim = 16;
      const ReplayShape shape = marconi_shape(model, 2e9);
      CHECK(shape.seconds.of(1000) == doctest::Approx(shape.flops.of(1000) / 2e9));
      return shape.flops.of(1000);
    };
    CHECK(flops({.ssm = 0, .attention = 1, .mlp = 0}) ==
          doctest::Approx(8 * l * d * d + 4 * l * l * d));
    CHECK(flops({.ssm = 0, .attention = 0, .mlp = 1}) == doctest::Approx(16 * l * d * d));
    CHECK(flops({.ssm = 1, .attention = 0, .mlp = 0}) ==
          doctest::Approx(12 * l * d * d + 16 * l * d * n + 10 * l * d));
    CHECK(marconi_shape({.ssm = 0}, 1e12).has_state() == false);
  }
}
