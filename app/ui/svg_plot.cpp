#include "app/ui/svg_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

constexpr double plot_width = 860, plot_height = 480;
constexpr double left = 70, right = 640, plot_top = 50, bottom = 420;  ///< of the area of the lines
constexpr double note_height = 15;
constexpr int ticks_most = 6;  ///< of round numbers on an axis, about
constexpr std::array<const char*, 10> line_colours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
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

/// The numbers 1, 2, 5 x 10^n from the last one below or at `low` to the first at or above `high`.
std::vector<double> round_numbers(double low, double high) {
  std::vector<double> numbers;
  for (double power = std::pow(10, std::floor(std::log10(low)));; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double number = factor * power;
      if (!numbers.empty() && number <= low * (1 + 1e-9)) numbers.clear();
      numbers.push_back(number);
      if (number >= high * (1 - 1e-9) && numbers.size() > 1) return numbers;
    }
  }
}

class Axes {
 public:
  explicit Axes(const Plot& plot)
      : is_x_logarithmic_(plot.is_x_logarithmic), is_y_logarithmic_(plot.is_y_logarithmic) {
    double low = 0, high = 1e-9;
    for (const PlotLine& line : plot.lines) {
      for (const PlotPoint& point : line.points) {
        xs_.insert(point.x);
        const double least = point.y > point.error ? point.y - point.error : point.y;
        low = low == 0 ? least : std::min(low, least);
        high = std::max(high, point.y + point.error);
      }
    }
    if (xs_.empty()) xs_.insert(1);
    if (high <= 1e-9) high = 1;  // nothing but zeros
    is_y_logarithmic_ = is_y_logarithmic_ && low > 0;
    if (is_y_logarithmic_) {
      y_ticks_ = round_numbers(low, high);
      return;
    }
    const double step = round_step(high / ticks_most);
    for (int i = 0; i <= static_cast<int>(std::ceil(high / step)); ++i)
      y_ticks_.push_back(i * step);
  }

  double x(double value) const {
    return left + (right - left) * share(value, *xs_.begin(), *xs_.rbegin(), is_x_logarithmic_);
  }
  double y(double value) const {
    return bottom -
           (bottom - plot_top) * share(value, y_ticks_.front(), y_ticks_.back(), is_y_logarithmic_);
  }

  std::string text() const {
    std::string out;
    for (const double value : y_ticks_) {
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
  static double share(double value, double low, double high, bool is_logarithmic) {
    if (high <= low) return 0.5;
    if (is_logarithmic) return std::log(value / low) / std::log(high / low);
    return (value - low) / (high - low);
  }

  /// Every x where they are few by design, as on a logarithmic axis; else round numbers, since
  /// those of measurements would overlap.
  std::vector<double> x_ticks() const {
    const double low = *xs_.begin(), high = *xs_.rbegin();
    if (is_x_logarithmic_ || high <= low) return {xs_.begin(), xs_.end()};
    const double step = round_step((high - low) / ticks_most);
    std::vector<double> ticks;
    for (double tick = std::ceil(low / step); tick * step <= high; ++tick) {
      ticks.push_back(tick * step);
    }
    return ticks;
  }

  bool is_x_logarithmic_, is_y_logarithmic_;
  std::set<double> xs_;
  std::vector<double> y_ticks_;
};

std::string line_text(const PlotLine& line, std::size_t number, const Axes& axes) {
  const char* colour = line_colours[number % line_colours.size()];
  const char* dashes = number < line_colours.size() ? "" : " stroke-dasharray=\"6 3\"";
  std::string path, marks;
  for (const auto& [x, y, error, label] : line.points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", axes.x(x), axes.y(y));
    marks += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", axes.x(x),
                         axes.y(y), colour);
    if (error > 0 && error < y) {
      marks += fmt::format("<path d=\"M{0:.1f} {1:.1f}h6m-3 0V{2:.1f}m-3 0h6\" stroke=\"{3}\"/>\n",
                           axes.x(x) - 3, axes.y(y + error), axes.y(y - error), colour);
    }
    if (label.empty()) continue;
    marks += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"10\" fill=\"{}\">{}</text>\n",
                         axes.x(x) + 5, axes.y(y) - 5, colour, escaped(label));
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

void check_plot_name(const std::string& file) {
  constexpr std::array others = {".png", ".jpg", ".jpeg", ".pdf", ".gif", ".webp", ".eps", ".ps"};
  const std::string ending = in_small_letters(std::filesystem::path(file).extension().string());
  if (std::ranges::find(others, ending) == others.end()) return;
  throw Error(ErrorKind::usage,
              fmt::format("{}: plots are SVG; give the file a name that ends in .svg", file));
}

std::string svg_text(const Plot& plot) {
  const double legend_end = plot_top + 18 * static_cast<double>(plot.lines.size());
  const double whole = std::max(plot_height, legend_end + 20) + note_height * plot.notes.size();
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
      "<text transform=\"translate(12 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      (plot_top + bottom) / 2, escaped(plot.y_title));
  for (std::size_t i = 0; i < plot.lines.size(); ++i) out += line_text(plot.lines[i], i, axes);
  for (std::size_t i = 0; i < plot.notes.size(); ++i) {
    out +=
        fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"11\" fill=\"#555\">{}</text>\n", left,
                    whole - 12 - note_height * (plot.notes.size() - 1 - i), escaped(plot.notes[i]));
  }
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
  for (PlotLine& line : plot.lines) std::ranges::stable_sort(line.points, {}, &PlotPoint::x);
}

}  // namespace hyb::app
