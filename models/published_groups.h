#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/tensor_files.h"
#include "kernels/weight_source.h"

namespace hyb::models {

/// Forms in which files hold a matrix [rows, columns] of 4 or 8 bits in groups of columns. P is its
/// name without ".weight"; G is columns / group.
///   packed  compressed-tensors pack-quantized: P.weight_packed I32 [rows, columns / 8], of eight
///           codes from the low end, P.weight_scale [rows, G], P.weight_zero_point I32 [rows / 8,
///           G] (rows rounded up), packed along the rows; without it the zero point is 8. Or [rows,
///           columns / 4], of four codes of 8 bits, without zero points: that of all is 128
///   nvfp4   P.weight U8 [rows, columns / 2] with P.weight_scale E4M3 [rows, columns / 16] and
///           P.weight_scale_2 F32 (ModelOpt); or P.weight_packed with P.weight_global_scale, by
///           which scales are divided (compressed-tensors)
///   int8    P.weight I8, P.weight_scale [rows], [rows, 1] or [rows, G], P.weight_zero_point I8
///   awq     P.qweight I32 [columns, rows / 8] in the order 0 2 4 6 1 3 5 7, P.qzeros [G, rows / 8]
///           in the same, P.scales [G, rows]
///   gptq    P.qweight I32 [columns / 8, rows], P.qzeros [G, rows / 8], P.scales [G, rows], P.g_idx
/// P.g_idx [columns], or P.weight_g_idx, has the group of each column (desc_act, actorder).
/// Experts in one tensor P are NVFP4: U8 [E, rows, columns / 2] with P_weight_scale and
/// P_weight_scale_2, of all or [E], as ModelOpt writes them; transposed [E, columns / 2, rows]. Of
/// GGUF files it is the blocks of NVFP4, with the F32 NAME.scale of a matrix or of each expert.
enum class GroupSpelling : std::uint8_t { packed, nvfp4, int8, awq, gptq };

/// The tensors of such a matrix but its codes, by name; "": it has none.
struct PublishedGroups {
  GroupSpelling spelling;
  std::int64_t group = 0;           ///< columns that share a scale
  kernels::GroupCodes codes = {};   ///< what becomes of them in memory
  std::int32_t zeros_below = 0;     ///< how much less than the zero points GPTQ's file has
  std::string scales, zeros, unit;  ///< scales: of blocks none; unit: the f32 of NVFP4
  std::string order;                ///< g_idx
};

/// Tensors that belong to a matrix in groups, and the first fault of these or of its own.
struct GroupCheck {
  PublishedGroups groups;
  std::vector<const TensorInfo*> beside;
  const TensorInfo* wrong = nullptr;
  std::string fault = {};
};

/// The name of a weight by that of its codes, or any other name as it is.
std::string plain_name(std::string_view stored);

/// The codes of a weight of this name; nullptr: there are none.
const TensorInfo* find_codes(const std::string& weight, const TensorFiles& files);

/// Returns the form of a matrix's codes, by their name and type; nullopt if they are not in groups.
std::optional<GroupSpelling> spelling_of(const TensorInfo& stored, std::int64_t rows);

/// Compares names, types and shapes.
GroupCheck check_groups(GroupSpelling spelling, const TensorInfo& stored, std::int64_t rows,
                        std::int64_t columns, const TensorFiles& files);

/// The same of experts in one tensor of this shape, of which the columns are the last dimension, or
/// where `transposed` the second.
GroupCheck check_stacked_groups(const TensorInfo& stored, const std::vector<std::int64_t>& shape,
                                bool transposed, const TensorFiles& files);

/// The same of blocks of NVFP4 in a GGUF file: [rows, columns] or [experts, rows, columns].
GroupCheck check_nvfp4_blocks(const TensorInfo& stored, const std::vector<std::int64_t>& shape,
                              const TensorFiles& files);

/// The matrix, read from mapped files; what has to be put in order first is put into `made`, which
/// outlives it. Throws Error(model), naming the tensor, for scales that are not finite (of NVFP4:
/// below 0, too), and groups of columns that do not exist or are of several sizes.
kernels::WeightSource read_groups(const PublishedGroups& groups, const std::string& codes,
                                  std::int64_t rows, std::int64_t columns, const TensorFiles& files,
                                  std::vector<std::byte>& made);

/// The same of experts in one tensor, and of NVFP4's blocks.
kernels::WeightSource read_stacked_groups(const PublishedGroups& groups, const std::string& codes,
                                          std::int64_t experts, std::int64_t rows,
                                          std::int64_t columns, bool transposed,
                                          const TensorFiles& files, std::vector<std::byte>& made);

}  // namespace hyb::models
