#pragma once

#include <string>
#include <vector>

namespace hyb::app {

struct PlotPoint {
  double x, y;
  double error = 0;        ///< y may as well be this much more or less; 0: not known
  std::string label = {};  ///< beside it; empty: none
};

/// A line of a plot, through its points in their order.
struct PlotLine {
  std::string name;
  std::vector<PlotPoint> points;
};

/// A plot with logarithmic or linear axes; a linear y axis begins at 0.
struct Plot {
  std::string title;
  std::string x_title;
  std::string y_title;
  bool is_x_logarithmic = false;  ///< every x is above 0
  bool is_y_logarithmic = false;  ///< every y is above 0
  std::vector<PlotLine> lines = {};
  std::vector<std::string> notes = {};  ///< below it: what was measured, where and when
};

/// The line of that name, the last one where it is new.
PlotLine& line_of(Plot& plot, const std::string& name);

void sort_points(Plot& plot);

/// Throws Error(usage) for a name of a file of another format, such as plot.png.
void check_plot_name(const std::string& file);

/// A whole SVG file that needs nothing else. Text is escaped.
std::string svg_text(const Plot& plot);

}  // namespace hyb::app
