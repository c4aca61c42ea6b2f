#include "app/ui/svg_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>

namespace hyb::app {
namespace {

constexpr double plot_width = 860, plot_height = 480;
constexpr double left = 70, right = 640, plot_top = 50, bottom = 420;  ///< of the area of the lines
constexpr int ticks_most = 6;  ///< of round numbers on an axis, about
constexpr std::array<const char*, 10> colours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#e69f00", "#56b4e9", "#555555", "#8c564b",
                                                 "#7f3fbf", "#a0a000"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
    }
  }
  return out;
}

/// The smallest of 1, 2, 5 x 10^n that is not below `least`.
double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

class Axes {
 public:
  explicit Axes(const Plot& plot) : is_logarithmic_(plot.is_x_logarithmic) {
    for (const PlotLine& line : plot.lines) {
      for (const auto& [x, y] : line.points) {
        xs_.insert(x);
        y_max_ = std::max(y_max_, y);
      }
    }
    y_step_ = round_step(std::max(y_max_, 1e-9) / ticks_most);
    y_max_ = y_step_ * std::ceil(std::max(y_max_, 1e-9) / y_step_);
    if (xs_.empty()) xs_.insert(1);
  }

  double x(double value) const {
    const double low = scaled(*xs_.begin()), high = scaled(*xs_.rbegin());
    if (high <= low) return (left + right) / 2;
    return left + (right - left) * (scaled(value) - low) / (high - low);
  }
  double y(double value) const { return bottom - (bottom - plot_top) * value / y_max_; }

  std::string text() const {
    std::string out;
    for (int i = 0; i <= static_cast<int>(std::lround(y_max_ / y_step_)); ++i) {
      const double value = i * y_step_;
      out += fmt::format("<path d=\"M{} {:.1f}H{}\" stroke=\"#ddd\"/>\n", left, y(value), right);
      out += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n", left - 8,
                         y(value) + 4, value);
    }
    for (const double value : x_ticks()) {
      out += fmt::format("<path d=\"M{:.1f} {}v5\" stroke=\"#333\"/>\n", x(value), bottom);
      out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:g}</text>\n",
                         x(value), bottom + 20, value);
    }
    return out + fmt::format("<path d=\"M{} {}V{}H{}\" fill=\"none\" stroke=\"#333\"/>\n", left,
                             plot_top, bottom, right);
  }

 private:
  /// Every x where they are few by design, as on a logarithmic axis; else round numbers, since
  /// those of measurements would overlap.
  std::vector<double> x_ticks() const {
    const double low = *xs_.begin(), high = *xs_.rbegin();
    if (is_logarithmic_ || high <= low) return {xs_.begin(), xs_.end()};
    const double step = round_step((high - low) / ticks_most);
    std::vector<double> ticks;
    for (double tick = std::ceil(low / step); tick * step <= high; ++tick) {
      ticks.push_back(tick * step);
    }
    return ticks;
  }

  double scaled(double value) const { return is_logarithmic_ ? std::log(value) : value; }

  bool is_logarithmic_;
  std::set<double> xs_;
  double y_max_ = 0, y_step_ = 1;
};

std::string line_text(const PlotLine& line, std::size_t number, const Axes& axes) {
  const char* colour = colours[number % colours.size()];
  const char* dashes = number < colours.size() ? "" : " stroke-dasharray=\"6 3\"";
  std::string path, marks;
  for (std::size_t i = 0; i < line.points.size(); ++i) {
    const auto& [x, y] = line.points[i];
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", axes.x(x), axes.y(y));
    marks += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", axes.x(x),
                         axes.y(y), colour);
    if (i >= line.labels.size()) continue;
    marks += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"10\" fill=\"{}\">{}</text>\n",
                         axes.x(x) + 5, axes.y(y) - 5, colour, escaped(line.labels[i]));
  }
  const double legend = plot_top + 18 * static_cast<double>(number);
  return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n{}", path,
                     colour, dashes, marks) +
         fmt::format("<path d=\"M{} {}h20\" stroke=\"{}\" stroke-width=\"2\"{}/>\n", right + 20,
                     legend, colour, dashes) +
         fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", right + 46, legend + 4,
                     escaped(line.name));
}

}  // namespace

std::string svg_text(const Plot& plot) {
  const double legend_end = plot_top + 18 * static_cast<double>(plot.lines.size());
  const double whole = std::max(plot_height, legend_end + 20);
  const Axes axes(plot);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{}\" y=\"28\" font-size=\"16\">{}</text>\n",
      plot_width, whole, left, escaped(plot.title));
  out += axes.text();
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                     (left + right) / 2, bottom + 45, escaped(plot.x_title));
  out += fmt::format(
      "<text transform=\"translate(20 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      (plot_top + bottom) / 2, escaped(plot.y_title));
  for (std::size_t i = 0; i < plot.lines.size(); ++i) out += line_text(plot.lines[i], i, axes);
  return out + "</svg>\n";
}

PlotLine& line_of(Plot& plot, const std::string& name) {
  for (PlotLine& line : plot.lines) {
    if (line.name == name) return line;
  }
  plot.lines.push_back({.name = name, .points = {}});
  return plot.lines.back();
}

void sort_points(Plot& plot) {
  for (PlotLine& line : plot.lines) std::sort(line.points.begin(), line.points.end());
}

}  // namespace hyb::app
