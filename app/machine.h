#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "kernels/device.h"

namespace hyb::app {

/// "model name" of /proc/cpuinfo; "unknown CPU" where it does not say.
std::string cpu_name();

/// A line of /proc/meminfo that is given in kB, in bytes: "MemTotal", "MemAvailable", ... None
/// where there is no such line.
std::optional<std::size_t> meminfo_bytes(const std::string& line);

/// The number a file holds; none when it holds a word ("max") or can't be read.
std::optional<std::size_t> number_in(const std::string& path);

/// The machine's memory, or the control group's where that is less. Throws Error(runtime) where
/// /proc/meminfo does not say.
std::size_t machine_bytes();

/// What could be allocated now, by the same two.
std::size_t available_bytes();

/// "avx512", "avx2", "plain".
const char* name_of(kernels::Isa isa);

}  // namespace hyb::app
