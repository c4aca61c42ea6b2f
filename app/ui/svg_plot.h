#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hyb::app {

/// A line of a plot, through its points in their order.
struct PlotLine {
  std::string name;
  std::vector<std::pair<double, double>> points;
  std::vector<std::string> labels = {};  ///< beside the points; empty: none
};

/// A plot with a logarithmic or linear x axis and a y axis from 0.
struct Plot {
  std::string title;
  std::string x_title;
  std::string y_title;
  bool is_x_logarithmic = false;  ///< every x is above 0
  std::vector<PlotLine> lines = {};
};

/// The line of that name, the last one where it is new.
PlotLine& line_of(Plot& plot, const std::string& name);

void sort_points(Plot& plot);

/// A whole SVG file that needs nothing else. Text is escaped.
std::string svg_text(const Plot& plot);

}  // namespace hyb::app
