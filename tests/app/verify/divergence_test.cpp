#include "app/verify/divergence.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

namespace divergence_test {

using namespace hyb;
using namespace hyb::app;

TEST_SUITE("app/verify/divergence") {
  TEST_CASE("divergence of known distributions") {
    const std::vector<float> half = {0, 0}, same = {5, 5};
    const std::vector<float> quarter = {std::log(1.0F), std::log(3.0F)};
    CHECK(divergence(LogitsRow(half), LogitsRow(same)) == doctest::Approx(0.0).epsilon(1e-12));
    CHECK(divergence(LogitsRow(half), LogitsRow(quarter)) ==
          doctest::Approx(0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75)).epsilon(1e-6));
    CHECK(divergence(LogitsRow(quarter), LogitsRow(half)) ==
          doctest::Approx(0.25 * std::log(0.25 / 0.5) + 0.75 * std::log(0.75 / 0.5)).epsilon(1e-6));
    const std::vector<float> large = {1e30F, 0}, gone = {0, -INFINITY}, nan = {NAN, 0};
    CHECK(divergence(LogitsRow(large), LogitsRow(large)) == 0);
    CHECK(divergence(LogitsRow(gone), LogitsRow(gone)) == 0);
    CHECK(divergence(LogitsRow(gone), LogitsRow(half)) == doctest::Approx(std::log(2.0)));
    CHECK(std::isinf(divergence(LogitsRow(half), LogitsRow(gone))));
    CHECK(std::isinf(divergence(LogitsRow(half), LogitsRow(nan))));
    CHECK(std::isinf(divergence(LogitsRow(nan), LogitsRow(half))));
  }

  TEST_CASE("a summary has the mean with its error, and counts other likeliest tokens") {
    const std::vector<float> half = {0, 0}, quarter = {std::log(1.0F), std::log(3.0F)};
    Divergences found;
    found.add(LogitsRow(half), LogitsRow(half));
    found.add(LogitsRow(half), LogitsRow(quarter));
    const double far = divergence(LogitsRow(half), LogitsRow(quarter));
    const DivergenceSummary summary = found.summary();
    CHECK(summary.rows == 2);
    CHECK(summary.likeliest_differs == 1);
    CHECK(summary.mean == doctest::Approx(far / 2));
    CHECK(summary.mean_error == doctest::Approx(far / 2));
    CHECK(summary.p99 == far);
    CHECK(summary.largest == far);
  }

  TEST_CASE("a row by its likeliest token is that of all its logits") {
    const std::vector<float> logits = {0.5F, 2.0F, -1.0F, 1.5F};
    const LogitsRow whole(logits);
    const LogitsRow sampled(logits, TokenId{1}, static_cast<float>(whole.logprob(TokenId{1})));
    CHECK(whole.likeliest == TokenId{1});
    CHECK(sampled.logprob(TokenId{2}) == doctest::Approx(whole.logprob(TokenId{2})).epsilon(1e-6));
    double sum = 0;
    for (std::int32_t i = 0; i < 4; ++i) sum += std::exp(whole.logprob(TokenId{i}));
    CHECK(sum == doctest::Approx(1.0));
  }
}

}  // namespace divergence_test
