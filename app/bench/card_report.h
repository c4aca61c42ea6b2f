#pragma once

#include <cstdint>
#include <string>

#include "app/bench/card_watch.h"
#include "core/base/json.h"

namespace hyb::app {

/// gpu_mhz_mean, gpu_mhz_min, gpu_memory_mhz_min, gpu_watts, gpu_joules, joules_per_token,
/// gpu_celsius_max, gpu_throttling; null where nobody said. `tokens` were generated meanwhile.
Json card_json(const CardFigures& figures, std::int64_t tokens);

/// "1980 MHz (least 1965), 412 W, 3.1 J/token, 61 °C, throttled: power cap"; "": nobody said.
std::string card_text(const CardFigures& figures, std::int64_t tokens);

}  // namespace hyb::app
