#pragma once

#include <memory>

#include "app/bench/card_meter.h"

namespace hyb::app {

/// The first card, through NVIDIA's management library, which is opened at run time. Null where
/// there is no such library, no driver or no card.
std::unique_ptr<CardMeter> open_nvml();

}  // namespace hyb::app
