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

  TEST_CASE("a name of another format is refused") {
    for (const char* name : {"x.png", "a/b.PDF"}) {
      CHECK(contains(error_text([&] { check_plot_name(name); }), "plots are SVG"));
    }
    for (const char* name : {"", "x", "x.svg", "png"}) CHECK_NOTHROW(check_plot_name(name));
  }

  TEST_CASE("lines are as wide as said, on white, and points may have labels") {
    const std::string svg =
        svg_text({.title = "",
                  .x_title = "",
                  .y_title = "",
                  .lines = {{.name = "one", .points = {{3, 1, 0, "a<"}, {1, 2, 0, "b"}}}}});
    CHECK(contains(svg, "stroke-width=\"2\""));
    CHECK(contains(svg, "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"));
    CHECK(contains(svg, ">a&lt;</text>"));
    CHECK(contains(svg, ">b</text>"));
    CHECK(contains(svg, "M640.0 235.0L70.0 50.0"));  // joined in their order
  }

  TEST_CASE("a linear axis has a few round ticks, whatever was measured") {
    PlotLine line = {.name = "many", .points = {}};
    for (int i = 0; i < 200; ++i) line.points.push_back({3.14159 + 0.1 * i, 1});
    const std::string svg = svg_text({.title = "", .x_title = "", .y_title = "", .lines = {line}});
    std::size_t ticks = 0;
    for (std::size_t at = svg.find("v5\""); at != std::string::npos;
         at = svg.find("v5\"", at + 1)) {
      ++ticks;
    }
    CHECK(ticks == 4);
    for (const char* const tick : {">5<", ">10<", ">15<", ">20<"}) CHECK(contains(svg, tick));
    CHECK_FALSE(contains(svg, "3.14159"));
  }

  TEST_CASE("a logarithmic y axis has round ends; points have errors, the plot notes") {
    const std::string svg = svg_text({.title = "",
                                      .x_title = "",
                                      .y_title = "",
                                      .is_y_logarithmic = true,
                                      .lines = {{"one", {{1, 30, 10}, {3, 900, 100}}}},
                                      .notes = {"model <x>", "today"}});
    for (const char* tick : {">20<", ">50<", ">100<", ">200<", ">500<", ">1000<"})
      CHECK(contains(svg, tick));
    for (const char* none : {">10<", ">2000<", ">0<"}) CHECK_FALSE(contains(svg, none));
    CHECK(contains(svg, "V420.0m-3 0h6"));  // 30 - 10 is the end of the axis
    CHECK(contains(svg, "viewBox=\"0 0 860 510\""));
    CHECK(contains(svg, "y=\"483\" font-size=\"11\" fill=\"#555\">model &lt;x&gt;</text>"));
    CHECK(contains(svg, ">today</text>"));
  }

  TEST_CASE("nothing to show is still a file") {
    Plot flat;
    flat.lines = {{"flat", {{1, 0}, {1, 0}}}};
    CHECK(svg_text({}).ends_with("</svg>\n"));
    CHECK(!contains(svg_text(flat), "nan"));
    CHECK(contains(svg_text(flat), ">1</text>"));  // and not 1e-9
    CHECK_FALSE(contains(svg_text(flat), "e-10"));
  }
}

}  // namespace svg_plot_test
