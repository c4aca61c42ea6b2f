#include "app/bench/card_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace hyb::app {
namespace {

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

std::optional<double> joules_per_token(const CardFigures& figures, std::int64_t tokens) {
  if (!figures.joules || tokens <= 0) return std::nullopt;
  return *figures.joules / static_cast<double>(tokens);
}

}  // namespace

Json card_json(const CardFigures& figures, std::int64_t tokens) {
  return {{"gpu_mhz_mean", json_of(figures.processor_mhz_mean)},
          {"gpu_mhz_min", json_of(figures.processor_mhz_min)},
          {"gpu_memory_mhz_min", json_of(figures.memory_mhz_min)},
          {"gpu_watts", json_of(figures.watts_mean)},
          {"gpu_joules", json_of(figures.joules)},
          {"joules_per_token", json_of(joules_per_token(figures, tokens))},
          {"gpu_celsius_max", json_of(figures.celsius_max)},
          {"gpu_throttling", figures.readings > 0 ? Json(figures.throttling) : Json(nullptr)}};
}

std::string card_text(const CardFigures& figures, std::int64_t tokens) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (figures.processor_mhz_mean && figures.processor_mhz_min) {
    add(fmt::format("{:.0f} MHz (least {:.0f})", *figures.processor_mhz_mean,
                    *figures.processor_mhz_min));
  }
  if (figures.watts_mean) add(fmt::format("{:.0f} W", *figures.watts_mean));
  if (const auto joules = joules_per_token(figures, tokens)) {
    add(fmt::format("{:.3g} J/token", *joules));
  }
  if (figures.celsius_max) add(fmt::format("{:.0f} °C", *figures.celsius_max));
  if (!figures.throttling.empty()) add("throttled: " + figures.throttling);
  return text;
}

}  // namespace hyb::app
