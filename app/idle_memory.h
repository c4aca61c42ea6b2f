#pragma once

#include <chrono>
#include <functional>

#include "core/engine/engine.h"

namespace hyb::app {

/// Work for the time in which a person does nothing (Asking::work): first `ahead`, if there is any;
/// then, when `delay` has passed since this call, the superblocks that hold nothing go back to the
/// machine. They come back by themselves when they are needed. The engine outlives the result.
std::function<bool()> give_back_when_idle(Engine& engine, std::chrono::duration<double> delay,
                                          std::function<bool()> ahead);

}  // namespace hyb::app
