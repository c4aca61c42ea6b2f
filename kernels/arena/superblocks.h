#pragma once

#include <memory>

#include "kernels/arena/superblock_map.h"
#include "kernels/device.h"

namespace hyb::kernels {

/// Superblocks in the memory of a device: make_host_superblocks on the CPU; on a card the driver's
/// virtual memory, where flip is what was asked for.
std::unique_ptr<SuperblockMap> make_superblocks(Device device, const SuperblockShape& shape,
                                                const SuperblockMapOptions& options);

}  // namespace hyb::kernels
