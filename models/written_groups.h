#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "kernels/linear/scale_search.h"
#include "kernels/queue.h"
#include "kernels/weight_source.h"
#include "models/plan.h"
#include "models/weight_index.h"

namespace hyb::models {

/// Form in which a matrix is written in groups, one of compressed-tensors' that published_groups.h
/// reads: `packed`, of 4 or 8 bits, with bf16 scales and without zero points, or `nvfp4`.
struct WrittenFormat {
  kernels::ScaledLevels levels;
  std::int64_t group;  ///< columns that share a scale; 0: all

  std::int64_t group_of(std::int64_t columns) const { return group > 0 ? group : columns; }
  /// Says whether the columns can be cut into such groups.
  bool takes(std::int64_t columns) const {
    return columns > 0 && columns % 8 == 0 && columns % group_of(columns) == 0;
  }
  std::string_view spelling() const;  ///< the format's name in quantization_config

  bool operator==(const WrittenFormat&) const = default;
};

/// A tensor to be written: what a safetensors header says of it.
struct WrittenTensor {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;

  std::size_t bytes() const;
};

/// The tensors of a matrix P.weight: their bytes follow each other in this order in written_matrix.
std::vector<WrittenTensor> written_tensors(const WrittenFormat& format, const std::string& weight,
                                           std::int64_t rows, std::int64_t columns);

/// The size of the largest number. Throws Error(model), which names `weight`, for one that is not
/// finite.
float largest_size(kernels::Queue& queue, const kernels::WeightSource& matrix,
                   const std::string& weight);

/// The bytes of all tensors of a matrix, whose scales are found by search_scale; the same for any
/// number of threads. `importance`: of each column. `largest`: of e2m1, of all matrices that
/// engines join with this one: they share a unit. Throws as largest_size.
std::vector<std::byte> written_matrix(kernels::Queue& queue, const WrittenFormat& format,
                                      const kernels::WeightSource& matrix,
                                      std::span<const float> importance, float largest,
                                      const std::string& weight);

/// A matrix of a plan as files have it.
struct PlannedMatrix {
  WeightKey key;
  std::int64_t rows = 0, columns = 0, experts = 1;  ///< experts: in one tensor
  bool is_linear = true;     ///< all of it is packed as LoadOptions ask of linear weights
  std::int64_t joined = -1;  ///< the same number: one below the other in a packed weight
};

/// All matrices of a plan, in its order; the index and what its keys name outlive them.
std::vector<PlannedMatrix> planned_matrices(const Plan& plan, const WeightIndex& index);

}  // namespace hyb::models
