#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "kernels/device.h"
#include "models/config.h"
#include "models/families.h"
#include "models/geometry.h"
#include "models/plan.h"

namespace hyb::models {

/// Returns how many of the plan's parameters are published as F8_E4M3 by what config.json (or
/// hf_quant_config.json) alone says, for sizes before a download: the linear layers, without those
/// that `modules_to_not_convert`, `ignore` or `exclude_modules` name, or those that
/// `quantized_layers` names; of the head only where it is no longer plain by such a list. Routers
/// and gates, which publishers leave plain, are not counted. An estimate: how a weight is stored,
/// the files alone decide. Throws Error(model) for what is damaged, and as required_weights does.
std::int64_t fp8_parameters(const Plan& plan, const Family& family, const Config& config);

/// The same of MXFP4.
std::int64_t mxfp4_parameters(const Plan& plan, const Family& family, const Config& config);

/// The same of numbers in groups (published_groups.h) that stay so on the device, and the bytes
/// that they take in memory.
PackedBlocks published_groups(const Plan& plan, const Family& family, const Config& config,
                              kernels::Device device = kernels::Device::cpu);

/// Published type of every weight, by role and layer: F8_E4M3, u8 (MXFP4), or the plan's.
using PublishedTypes = std::map<std::pair<Role, std::int32_t>, DType>;

/// Goes by what config.json alone says, as the two above; empty where nothing is quantised.
PublishedTypes published_types(const Plan& plan, const Family& family, const Config& config);

/// A quantised checkpoint's size.
struct PublishedSize {
  std::string format;  ///< "NVFP4", "4-bit GPTQ"; several are joined by " and "
  std::int64_t bytes;  ///< of all weights, scales and zero points included
};

/// The same for all formats in use, also those that hyb does not read: FP8, modelopt's, MXFP4,
/// GPTQ, AWQ, bitsandbytes, compressed-tensors. `plan` is that of config.without_quantization().
/// nullopt: nothing is quantised, or in a way that is not known here.
std::optional<PublishedSize> published_size(const Plan& plan, const Family& family,
                                            const Config& config);

}  // namespace hyb::models
