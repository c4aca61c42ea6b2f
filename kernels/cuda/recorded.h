#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/ops/device_sampler.h"
#include "kernels/recording.h"

namespace hyb::kernels::cuda {

/// On a card make_staged_tables(), record() and the functions of device_sampler.h are these.
std::unique_ptr<StagedTables> make_staged_tables(Stream& stream, std::size_t bytes);
StagedBytes device_tables_bytes(std::size_t bytes);
std::unique_ptr<Recording> record(Stream& stream, const std::function<void()>& body);
std::unique_ptr<DeviceSampler> make_device_sampler(Stream& stream, std::int64_t rows_max);
StagedBytes device_sampler_bytes(std::int64_t rows_max);

}  // namespace hyb::kernels::cuda
