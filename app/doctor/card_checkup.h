#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/machine/device.h"
#include "core/base/json.h"
#include "kernels/card.h"

namespace hyb::app {

/// A card that answers, and what was tried on it.
struct CardCheckup {
  kernels::Card card;
  std::size_t mapping_bytes = 0;  ///< the unit in which its memory is mapped; 0: not known
  bool aliases = false;           ///< memory written at one address was read at another
  std::string mapping_failure;    ///< why it can't be mapped so; "" where it can
  bool has_library = false;
  std::string library;       ///< which cuBLASLt, or why there is none
  double bytes_per_s = 0.0;  ///< read and written by copies; 0: not measured
  std::string copy_failure;  ///< why not
};

/// Describes what this build and machine support of CUDA.
struct CudaCheckup {
  bool build_has_cuda = false;
  CardTraces traces;
  std::string failure;  ///< why no card answers; "" where one does
  std::optional<CardCheckup> card;
  DeviceChoice automatic;  ///< what --device auto means here
};

CudaCheckup examine_cuda();

/// Says what to install so that cards are fully used; "" where nothing is missing, or no card can
/// be used.
std::string cuda_advice(const CudaCheckup& cuda);

/// Rows of doctor's table: what, and what is said about it.
std::vector<std::pair<std::string, std::string>> cuda_rows(const CudaCheckup& cuda);
Json cuda_json(const CudaCheckup& cuda);

}  // namespace hyb::app
