#include "models/weight_loader.h"

#include <span>

#include "core/base/error.h"
#include "kernels/transfer.h"

namespace hyb::models {

/// What `make` makes; once more where it found no room and some was made.
template <typename Make>
auto WeightLoader::with_room(const Make& make) const {
  try {
    return make();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory || !make_room_ || !make_room_()) throw;
  }
  return make();
}

bool WeightLoader::has(std::string_view role) const {
  return provider_.has({.role = role, .layer = layer_});
}

kernels::WeightSource WeightLoader::stored(std::string_view role, std::int64_t rows,
                                           std::int64_t columns, std::int64_t experts,
                                           std::int32_t expert) {
  read_.emplace_back(role, expert);
  return provider_.matrix({.role = role, .layer = layer_, .expert = expert}, experts, rows,
                          columns);
}

kernels::Weight WeightLoader::pack(const kernels::WeightSource& source) {
  return pack(source, options_.activation, options_.quantize);
}

kernels::Weight WeightLoader::pack(const kernels::WeightSource& source, DType dtype,
                                   kernels::Quantize quantize) {
  kernels::Weight packed =
      with_room([&] { return kernels::Weight::pack(queue_, source, dtype, quantize); });
  weights_.packed_bytes += packed.owned_bytes();
  for (const auto& [role, expert] : read_) {
    provider_.release({.role = role, .layer = layer_, .expert = expert});
  }
  read_.clear();
  return packed;
}

kernels::Weight WeightLoader::matrix(std::string_view role, std::int64_t rows, std::int64_t columns,
                                     std::int64_t experts) {
  return pack(stored(role, rows, columns, experts));
}

kernels::Weight WeightLoader::matrix_as(kernels::Quantize quantize, std::string_view role,
                                        std::int64_t rows, std::int64_t columns) {
  return pack(stored(role, rows, columns), options_.activation, quantize);
}

kernels::WeightSource WeightLoader::stacked_source(
    std::initializer_list<std::pair<std::string_view, std::int64_t>> parts, std::int64_t columns) {
  kernels::WeightSource all(1, 0, columns);
  for (const auto& [role, rows] : parts) {
    all.append(stored(role, rows, columns), 0, rows);
    all.rows += rows;
  }
  return all;
}

kernels::Weight WeightLoader::stacked(
    std::initializer_list<std::pair<std::string_view, std::int64_t>> parts, std::int64_t columns) {
  return pack(stacked_source(parts, columns));
}

float* WeightLoader::upload(const std::vector<float>& values) {
  kernels::Buffer& buffer = weights_.vectors.emplace_back(
      with_room([&] { return kernels::Buffer(queue_.device(), values.size() * sizeof(float)); }));
  kernels::upload(queue_, buffer.data(), std::as_bytes(std::span(values)));
  return reinterpret_cast<float*>(buffer.data());
}

kernels::Tensor WeightLoader::vector(std::string_view role, std::int64_t rows,
                                     std::int64_t columns) {
  const WeightKey key{.role = role, .layer = layer_};
  float* const values = upload(provider_.vector(key, rows * (columns == 0 ? 1 : columns)));
  provider_.release(key);
  if (columns == 0) return kernels::Tensor(values, DType::f32, {rows});
  return kernels::Tensor(values, DType::f32, {rows, columns});
}

kernels::Tensor WeightLoader::repeated(std::string_view role, std::int64_t rows,
                                       std::int64_t times) {
  const WeightKey key{.role = role, .layer = layer_};
  const std::vector<float> once = provider_.vector(key, rows);
  provider_.release(key);
  std::vector<float> all;
  for (std::int64_t i = 0; i < times; ++i) all.insert(all.end(), once.begin(), once.end());
  return kernels::Tensor(upload(all), DType::f32, {rows * times});
}

}  // namespace hyb::models
