#include "models/written_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>

#include "core/base/error.h"
#include "core/io/file.h"
#include "kernels/floats.h"
#include "models/parts/weight_visitor.h"
#include "models/weights.h"

namespace hyb::models {
namespace {

using kernels::ScaledLevels;

[[noreturn]] void refuse_numbers(const std::string& weight) {
  throw Error(ErrorKind::model,
              fmt::format("tensor {} has numbers that are not finite", quote_name(weight)));
}

std::uint8_t e2m1_of(float level) {
  std::uint8_t code = 0;
  while (kernels::e2m1_to_float(code) != std::fabs(level)) ++code;
  return static_cast<std::uint8_t>(code | (level < 0 ? 8U : 0U));
}

void put_levels(ScaledLevels levels, std::span<const float> nearest, std::byte* out) {
  if (levels == ScaledLevels::int8) {
    for (const float level : nearest) {
      *out++ = static_cast<std::byte>(static_cast<int>(level) + 128);
    }
    return;
  }
  const auto code = [&](float level) {
    return levels == ScaledLevels::int4 ? static_cast<unsigned>(static_cast<int>(level) + 8)
                                        : unsigned{e2m1_of(level)};
  };
  for (std::size_t k = 0; k < nearest.size(); k += 2) {
    *out++ = static_cast<std::byte>(code(nearest[k]) | code(nearest[k + 1]) << 4);
  }
}

/// Calls body(row, numbers) for all rows, on all threads.
void each_row(kernels::Queue& queue, const kernels::WeightSource& matrix,
              const std::function<void(std::int64_t, std::span<const float>)>& body) {
  queue.share(matrix.rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> numbers(static_cast<std::size_t>(matrix.columns));
    for (std::int64_t n = begin; n < end; ++n) {
      kernels::read_numbers(matrix.row(n), 0, numbers);
      body(n, numbers);
    }
  });
}

/// Notes which stored matrices are packed how.
class MatrixLister : public WeightVisitor {
 public:
  explicit MatrixLister(const WeightIndex& index) : index_(index) {}

  std::vector<PlannedMatrix> matrices;

  bool is_fused(Role fused, Role, std::int32_t) override {
    return index_.has({.role = fused, .layer = layer()});
  }
  bool pack_alike(const MatrixRows&, Packing, const MatrixRows&, Packing) override { return false; }

  kernels::Weight pack(const MatrixRows& rows, Packing packing) override {
    for (const auto& [role, expert] : rows.stored()) {
      PlannedMatrix& matrix = matrices[place_.at({role, layer(), expert})];
      matrix.is_linear = matrix.is_linear && packing == Packing::linear && !rows.is_turned();
      // Experts are packed as one weight, but each runs for itself.
      matrix.joined = packs_ + std::max(expert, 0);
    }
    packs_ += std::int64_t{1} << 20;
    return {};
  }

 private:
  kernels::WeightSource numbers(const Matrix& matrix) override {
    const WeightKey key = {matrix.role, layer(), matrix.expert};
    if (place_.emplace(key, matrices.size()).second) {
      matrices.push_back({.key = key,
                          .rows = matrix.rows,
                          .columns = matrix.columns,
                          .experts = std::max<std::int64_t>(matrix.experts, 1),
                          .is_linear = !matrix.transposed});
    }
    return WeightVisitor::numbers(matrix);
  }
  float* visit_small(std::span<const Small>) override { return nullptr; }

  const WeightIndex& index_;
  std::map<WeightKey, std::size_t> place_;
  std::int64_t packs_ = 0;
};

}  // namespace

std::string_view WrittenFormat::spelling() const {
  return levels == ScaledLevels::e2m1 ? "nvfp4-pack-quantized" : "pack-quantized";
}

std::size_t WrittenTensor::bytes() const {
  return std::accumulate(shape.begin(), shape.end(), size_of(dtype),
                         [](std::size_t all, std::int64_t dimension) {
                           return all * static_cast<std::size_t>(dimension);
                         });
}

std::vector<WrittenTensor> written_tensors(const WrittenFormat& format, const std::string& weight,
                                           std::int64_t rows, std::int64_t columns) {
  const std::int64_t groups = columns / format.group_of(columns);
  if (format.levels == ScaledLevels::e2m1) {
    return {{weight + "_global_scale", DType::f32, {1}},
            {weight + "_packed", DType::u8, {rows, columns / 2}},
            {weight + "_scale", DType::f8_e4m3, {rows, groups}}};
  }
  const std::int64_t in_word = format.levels == ScaledLevels::int8 ? 4 : 8;
  return {{weight + "_shape", DType::i64, {2}},
          {weight + "_packed", DType::i32, {rows, columns / in_word}},
          {weight + "_scale", DType::bf16, {rows, groups}}};
}

float largest_size(kernels::Queue& queue, const kernels::WeightSource& matrix,
                   const std::string& weight) {
  std::vector<float> of_row(static_cast<std::size_t>(matrix.rows));
  each_row(queue, matrix, [&](std::int64_t n, std::span<const float> numbers) {
    float largest = 0, zero = 0;
    for (const float number : numbers) {
      largest = std::max(largest, std::fabs(number));
      zero += number * 0.0F;
    }
    of_row[static_cast<std::size_t>(n)] = largest + zero;
  });
  float largest = 0;
  for (const float size : of_row) {
    if (std::isnan(size)) refuse_numbers(weight);
    largest = std::max(largest, size);
  }
  return largest;
}

std::vector<std::byte> written_matrix(kernels::Queue& queue, const WrittenFormat& format,
                                      const kernels::WeightSource& matrix,
                                      std::span<const float> importance, float largest,
                                      const std::string& weight) {
  const auto tensors = written_tensors(format, weight, matrix.rows, matrix.columns);
  std::size_t sum = 0;
  for (const WrittenTensor& tensor : tensors) sum += tensor.bytes();
  std::vector<std::byte> all(sum);
  const std::size_t code_bytes = tensors[1].bytes();
  std::byte* const codes = all.data() + tensors[0].bytes();
  std::byte* const scales = codes + code_bytes;
  float unit = 1;
  if (format.levels == ScaledLevels::e2m1) {
    const float divisor = 1 / kernels::e2m1_unit(largest);  // as the files have it
    std::memcpy(all.data(), &divisor, sizeof(divisor));
    unit = 1 / divisor;
  } else {
    const std::int64_t shape[] = {matrix.rows, matrix.columns};
    std::memcpy(all.data(), shape, sizeof(shape));
  }
  const auto group = static_cast<std::size_t>(format.group_of(matrix.columns));
  const auto groups = static_cast<std::size_t>(matrix.columns) / group;
  const std::size_t row_bytes = code_bytes / static_cast<std::size_t>(matrix.rows);
  std::atomic<bool> is_finite = true;
  each_row(queue, matrix, [&](std::int64_t n, std::span<const float> numbers) {
    std::vector<float> nearest(group);
    for (std::size_t g = 0; g < groups; ++g) {
      const std::optional<float> scale =
          kernels::search_scale(format.levels, numbers.subspan(g * group, group),
                                importance.subspan(g * group, group), unit, nearest);
      if (!scale) {
        is_finite = false;
        return;
      }
      const std::size_t place = static_cast<std::size_t>(n) * groups + g;
      put_levels(format.levels, nearest,
                 codes + static_cast<std::size_t>(n) * row_bytes + g * (row_bytes / groups));
      if (format.levels == ScaledLevels::e2m1) {
        scales[place] = static_cast<std::byte>(kernels::to_e4m3(*scale).bits);
      } else {
        kernels::write_value(scales, DType::bf16, static_cast<std::int64_t>(place), *scale);
      }
    }
  });
  if (!is_finite) refuse_numbers(weight);
  return all;
}

std::vector<PlannedMatrix> planned_matrices(const Plan& plan, const WeightIndex& index) {
  MatrixLister lister(index);
  visit_weights(plan, lister);
  return std::move(lister.matrices);
}

}  // namespace hyb::models
