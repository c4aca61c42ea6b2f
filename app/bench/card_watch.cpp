#include "app/bench/card_watch.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <stop_token>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/machine/nvml.h"

namespace hyb::app {
namespace {

using Value = std::optional<double>;

/// The mean of `count` values and of `more` further ones.
Value joined_mean(const Value& mean, std::int64_t count, const Value& other, std::int64_t more) {
  if (!mean || !other) return mean ? mean : other;
  const auto weight = static_cast<double>(count), added = static_cast<double>(more);
  return (*mean * weight + *other * added) / std::max(weight + added, 1.0);
}

template <typename Choose>
Value joined(const Value& one, const Value& other, Choose&& choose) {
  if (!one || !other) return one ? one : other;
  return choose(*one, *other);
}

double least(double a, double b) { return std::min(a, b); }
double most(double a, double b) { return std::max(a, b); }
double sum(double a, double b) { return a + b; }

}  // namespace

void CardFigures::add(const CardFigures& more) {
  processor_mhz_mean =
      joined_mean(processor_mhz_mean, readings, more.processor_mhz_mean, more.readings);
  watts_mean = joined_mean(watts_mean, readings, more.watts_mean, more.readings);
  processor_mhz_min = joined(processor_mhz_min, more.processor_mhz_min, least);
  memory_mhz_min = joined(memory_mhz_min, more.memory_mhz_min, least);
  joules = joined(joules, more.joules, sum);
  celsius_max = joined(celsius_max, more.celsius_max, most);
  if (throttling.find(more.throttling) == std::string::npos) {
    throttling += (throttling.empty() ? "" : ", ") + more.throttling;
  }
  readings += more.readings;
}

CardWatch::~CardWatch() { static_cast<void>(end()); }

void CardWatch::sample() {
  const CardReading reading = meter_->read();
  const std::lock_guard lock(mutex_);
  if (!first_joules_) first_joules_ = reading.joules;
  last_joules_ = reading.joules;
  figures_.add({.processor_mhz_mean = reading.processor_mhz,
                .processor_mhz_min = reading.processor_mhz,
                .memory_mhz_min = reading.memory_mhz,
                .watts_mean = reading.watts,
                .celsius_max = reading.celsius,
                .throttling = reading.throttling,
                .readings = 1});
}

void CardWatch::begin() {
  if (meter_ == nullptr) return;
  static_cast<void>(end());
  figures_ = {};
  first_joules_.reset();
  sample();
  reader_ = std::jthread([this](const std::stop_token& stop) {
    std::mutex nobody;
    std::condition_variable_any wake;
    std::unique_lock lock(nobody);
    while (!wake.wait_for(lock, stop, interval_, [&] { return stop.stop_requested(); })) sample();
  });
}

CardFigures CardWatch::end() {
  if (!reader_.joinable()) return {};
  reader_.request_stop();
  reader_.join();
  sample();
  if (first_joules_ && last_joules_) figures_.joules = *last_joules_ - *first_joules_;
  return figures_;
}

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

namespace {

// The part of NVML's C interface that is used, as its manual has it.
using NvmlDevice = void*;
constexpr int success = NvmlLibrary::success;
constexpr unsigned processor_clock = 1, memory_clock = 2;
constexpr unsigned on_the_card = 0;  ///< the temperature sensor

struct ThrottleReason {
  unsigned long long bit;
  const char* name;
};
/// Idle (bit 0) and clocks that an application set (bit 1) do not throttle.
constexpr std::array<ThrottleReason, 6> throttle_reasons = {{{0x04, "power cap"},
                                                             {0x08, "hardware slowdown"},
                                                             {0x20, "software thermal slowdown"},
                                                             {0x40, "hardware thermal slowdown"},
                                                             {0x80, "power brake"},
                                                             {0x10, "sync boost"}}};

class NvmlMeter final : public CardMeter {
 public:
  NvmlMeter() {
    if (!nvml_.is_open()) return;
    int (*handle)(unsigned, NvmlDevice*) = nullptr;
    is_open_ =
        nvml_.find(handle, "nvmlDeviceGetHandleByIndex_v2") && handle(0, &device_) == success;
    nvml_.find(clock_, "nvmlDeviceGetClockInfo");
    nvml_.find(power_, "nvmlDeviceGetPowerUsage");
    nvml_.find(energy_, "nvmlDeviceGetTotalEnergyConsumption");
    nvml_.find(temperature_, "nvmlDeviceGetTemperature");
    nvml_.find(throttle_, "nvmlDeviceGetCurrentClocksThrottleReasons");
  }

  bool is_open() const { return is_open_; }

  CardReading read() override {
    CardReading reading;
    reading.processor_mhz = clock(processor_clock);
    reading.memory_mhz = clock(memory_clock);
    unsigned milliwatts = 0, celsius = 0;
    unsigned long long millijoules = 0, reasons = 0;
    if (power_ != nullptr && power_(device_, &milliwatts) == success) {
      reading.watts = milliwatts / 1e3;
    }
    if (energy_ != nullptr && energy_(device_, &millijoules) == success) {
      reading.joules = static_cast<double>(millijoules) / 1e3;
    }
    if (temperature_ != nullptr && temperature_(device_, on_the_card, &celsius) == success) {
      reading.celsius = celsius;
    }
    if (throttle_ == nullptr || throttle_(device_, &reasons) != success) return reading;
    for (const ThrottleReason& reason : throttle_reasons) {
      if ((reasons & reason.bit) == 0) continue;
      reading.throttling += (reading.throttling.empty() ? "" : ", ") + std::string(reason.name);
    }
    return reading;
  }

  std::string driver() const override {
    int (*version)(char*, unsigned) = nullptr;
    std::array<char, 96> text{};
    const auto length = static_cast<unsigned>(text.size());
    const bool is_known = nvml_.find(version, "nvmlSystemGetDriverVersion") &&
                          version(text.data(), length) == success;
    return is_known ? text.data() : "";
  }

 private:
  std::optional<double> clock(unsigned which) const {
    unsigned mhz = 0;
    if (clock_ == nullptr || clock_(device_, which, &mhz) != success) return std::nullopt;
    return mhz;
  }

  NvmlLibrary nvml_;
  NvmlDevice device_ = nullptr;
  bool is_open_ = false;
  int (*clock_)(NvmlDevice, unsigned, unsigned*) = nullptr;
  int (*power_)(NvmlDevice, unsigned*) = nullptr;
  int (*energy_)(NvmlDevice, unsigned long long*) = nullptr;
  int (*temperature_)(NvmlDevice, unsigned, unsigned*) = nullptr;
  int (*throttle_)(NvmlDevice, unsigned long long*) = nullptr;
};

}  // namespace

std::unique_ptr<CardMeter> open_nvml() {
  auto meter = std::make_unique<NvmlMeter>();
  if (!meter->is_open()) return nullptr;
  return meter;
}

}  // namespace hyb::app
