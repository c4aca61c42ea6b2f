#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "kernels/recording.h"
#include "kernels/staged_tables.h"

namespace hyb::kernels::cuda {

/// What make_staged_tables() and record() are on a card.
std::unique_ptr<StagedTables> make_staged_tables(Stream& stream, std::size_t bytes);
std::unique_ptr<Recording> record(Stream& stream, const std::function<void()>& body);

}  // namespace hyb::kernels::cuda
