#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "app/bench/card_meter.h"

namespace hyb::app {

/// What a card did between two moments; nothing where its driver does not say.
struct CardFigures {
  std::optional<double> processor_mhz_mean = {}, processor_mhz_min = {}, memory_mhz_min = {};
  std::optional<double> watts_mean = {}, joules = {}, celsius_max = {};
  std::string throttling = {};  ///< all reasons that came up
  std::int64_t readings = 0;

  /// Of two stretches of time, one after the other; clocks and watts weigh by their readings.
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
  /// What was read since begin().
  CardFigures end();

 private:
  void look();

  CardMeter* meter_;
  std::chrono::milliseconds interval_;
  std::mutex mutex_;  ///< guards what follows; a reading may take a millisecond
  CardFigures figures_;
  std::optional<double> first_joules_, last_joules_;
  std::jthread reader_;
};

}  // namespace hyb::app
