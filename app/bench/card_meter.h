#pragma once

#include <optional>
#include <string>

namespace hyb::app {

/// What a card's driver says at a moment; nothing where it does not say.
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

}  // namespace hyb::app
