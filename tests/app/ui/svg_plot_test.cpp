#include <doctest/doctest.h>

#include "app/ui/svg_plot.h"
#include "tests/support/error_text.h"

namespace svg_plot_test {

using namespace hyb::app;
using namespace hyb::testing;

TEST_SUITE("app/replay/svg_plot") {
  TEST_CASE("lines, ticks and escaped text") {
    const std::string svg =
        svg_text({.title = "a < b & c",
                  .x_title = "budget",
                  .y_title = "rate",
                  .is_x_logarithmic = true,
                  .lines = {{"one", {{1, 10}, {2, 40}, {4, 85}}}, {"t<wo", {{1, 5}}}}});
    CHECK(svg.starts_with("<svg "));
    CHECK(svg.ends_with("</svg>\n"));
    CHECK(contains(svg, "a &lt; b &amp; c"));
    CHECK(contains(svg, "t&lt;wo"));
    // Budgets that double are equally far apart; y grows upwards.
    CHECK(contains(svg, "cx=\"70.0\""));
    CHECK(contains(svg, "cx=\"355.0\""));
    CHECK(contains(svg, "cx=\"640.0\""));
    CHECK(contains(svg, ">100</text>"));
    CHECK(contains(svg, ">4</text>"));
  }

  TEST_CASE("nothing to show is still a file") {
    Plot flat;
    flat.lines = {{"flat", {{1, 0}, {1, 0}}}};
    CHECK(svg_text({}).ends_with("</svg>\n"));
    CHECK(!contains(svg_text(flat), "nan"));
  }
}

}  // namespace svg_plot_test
