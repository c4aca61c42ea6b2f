#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/base/json.h"

namespace hyb::app {

/// One reading of a card's driver; empty where the driver reports nothing.
struct CardReading {
  std::optional<double> processor_mhz, memory_mhz;  ///< clocks
  std::optional<double> watts;
  std::optional<double> joules;  ///< since the driver was loaded
  std::optional<double> celsius;
  std::string throttling;  ///< why clocks are held down; "": they are not
};

/// Reads a card's sensors.
class CardMeter {
 public:
  virtual ~CardMeter() = default;
  virtual CardReading read() = 0;
  virtual std::string driver() const { return ""; }  ///< its version
};

/// Readings of a card between two moments; empty where its driver reports nothing.
struct CardFigures {
  std::optional<double> processor_mhz_mean = {}, processor_mhz_min = {}, memory_mhz_min = {};
  std::optional<double> watts_mean = {}, joules = {}, celsius_max = {};
  std::string throttling = {};  ///< all reasons that came up
  std::int64_t readings = 0;

  /// Joins two stretches of time, one after the other; clocks and watts weigh by their readings.
  void add(const CardFigures& more);
};

/// Reads a card's sensors from time to time while something is measured, in a thread of its own.
class CardWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// Null: there is no card, and all figures are empty. The meter outlives this.
  explicit CardWatch(CardMeter* meter,
                     std::chrono::milliseconds interval = std::chrono::milliseconds(100))
      : meter_(meter), interval_(interval) {}
  ~CardWatch();
  CardWatch(const CardWatch&) = delete;
  CardWatch& operator=(const CardWatch&) = delete;

  void begin();
  /// Returns the figures of what was read since begin().
  CardFigures end();

 private:
  void sample();

  CardMeter* meter_;
  std::chrono::milliseconds interval_;
  std::mutex mutex_;  ///< guards what follows; a reading may take a millisecond
  CardFigures figures_;
  std::optional<double> first_joules_, last_joules_;
  std::jthread reader_;
};

/// gpu_mhz_mean, gpu_mhz_min, gpu_memory_mhz_min, gpu_watts, gpu_joules, joules_per_token,
/// gpu_celsius_max, gpu_throttling; null where it is not known. `tokens` were generated in that
/// time.
Json card_json(const CardFigures& figures, std::int64_t tokens);

/// "1980 MHz (least 1965), 412 W, 3.1 J/token, 61 °C, throttled: power cap"; "": not known.
std::string card_text(const CardFigures& figures, std::int64_t tokens);

/// The first card, through NVIDIA's management library, which is opened at run time. Null where
/// there is no such library, no driver or no card.
std::unique_ptr<CardMeter> open_nvml();

}  // namespace hyb::app
