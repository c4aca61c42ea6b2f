#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "kernels/weight_source.h"
#include "models/weights.h"

namespace hyb::models {
namespace {

using kernels::mix;

std::uint64_t stream_of(const WeightKey& key, std::uint64_t seed) {
  std::uint64_t hash = mix(seed) ^ static_cast<std::uint64_t>(key.layer + 1) ^
                       static_cast<std::uint64_t>(key.expert + 1) << 32;
  for (const char letter : key.role.name()) hash = mix(hash ^ static_cast<unsigned char>(letter));
  return hash;
}

struct Spread {
  float centre, reach;
};
Spread spread_of(RoleKind kind) {
  switch (kind) {
    case RoleKind::around_1:
      return {1.0F, 0.2F};
    case RoleKind::log_decay:
      return {1.4F, 1.4F};  // rates exp(0) .. exp(2.8), as initialised for training
    case RoleKind::zero:
      return {0.0F, 0.0F};  // all experts alike
    case RoleKind::time_step:
      return {-4.0F, 2.0F};  // softplus gives time steps of about 0.002 .. 0.1
    default:
      return {0.0F, 0.5F};
  }
}

}  // namespace

kernels::WeightSource FileWeights::matrix(const WeightKey& key, std::int64_t experts,
                                          std::int64_t rows, std::int64_t columns,
                                          bool transposed) {
  const TensorView view = index_.view(key);
  if (const PublishedGroups* const groups = index_.groups(key)) {
    const std::string& name = index_.name(key);
    if (experts == 1 && !transposed && view.block == nullptr) {
      return read_groups(*groups, name, rows, columns, index_.files(), made_[key]);
    }
    return read_stacked_groups(*groups, name, experts, rows, columns, transposed, index_.files(),
                               made_[key]);
  }
  if (view.block != nullptr) {
    require(!transposed, "weights: blocks are of rows");
    return {*view.block, experts, rows, columns, view.bytes};
  }
  const StoredScales* const scales = index_.scales(key);
  const std::size_t expert_bytes = view.bytes.size() / static_cast<std::size_t>(experts);
  kernels::WeightSource source(experts, rows, columns);
  if (transposed) {
    for (std::size_t e = 0; e < static_cast<std::size_t>(experts); ++e) {
      source.append_transposed(view.dtype, rows,
                               view.bytes.subspan(e * expert_bytes, expert_bytes));
    }
    return source;
  }
  if (scales == nullptr) return {view.dtype, experts, rows, columns, view.bytes};
  const TensorView all = index_.scales_view(*scales);
  const std::size_t scale_bytes = static_cast<std::size_t>(scales->per_expert) * size_of(all.dtype);
  for (std::size_t e = 0; e < static_cast<std::size_t>(experts); ++e) {
    source.append(view.dtype, rows, view.bytes.subspan(e * expert_bytes, expert_bytes),
                  {.dtype = all.dtype,
                   .bytes = all.bytes.subspan(e * scale_bytes, scale_bytes),
                   .row_block = scales->row_block,
                   .column_block = scales->column_block});
  }
  return source;
}

void FileWeights::release(const WeightKey& key) {
  made_.erase(key);
  index_.drop(key);
}

std::vector<float> FileWeights::vector(const WeightKey& key, std::int64_t count) {
  const TensorView view = index_.view(key);
  require(view.bytes.size() == static_cast<std::size_t>(count) * size_of(view.dtype),
          "weights: the index checked every shape");
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(kernels::published_value(view.bytes.data(), view.dtype, i));
  }
  const auto is_rate = [](float value) { return std::isfinite(value) && value < 0; };
  if (key.role.kind() == RoleKind::decay && !std::all_of(values.begin(), values.end(), is_rate)) {
    throw Error(ErrorKind::model, fmt::format("tensor {} is to have numbers below 0 alone",
                                              quote_name(index_.name(key))));
  }
  return values;
}

kernels::WeightSource RandomWeights::matrix(const WeightKey& key, std::int64_t experts,
                                            std::int64_t rows, std::int64_t columns, bool) {
  const auto published = types_.find({key.role, key.layer});
  const DType dtype = published == types_.end() ? dtype_ : published->second;
  const float reach = std::sqrt(3.0F / static_cast<float>(columns));
  return {kernels::RandomNumbers{.stream = stream_of(key, seed_), .reach = reach, .dtype = dtype},
          experts, rows, columns};
}

std::vector<float> RandomWeights::vector(const WeightKey& key, std::int64_t count) {
  const auto [centre, reach] = spread_of(key.role.kind());
  const std::uint64_t stream = stream_of(key, seed_);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = centre + reach * kernels::uniform(mix(stream + i));
  }
  return values;
}

}  // namespace hyb::models
