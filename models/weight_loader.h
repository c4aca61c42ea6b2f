#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/weights.h"

namespace hyb::models {

/// Reads the stored tensors of one layer after the other, or the model-wide ones (layer -1), brings
/// their rows into the order in which parts read them, and packs them.
class WeightLoader {
 public:
  /// All outlive the loader; `weights` takes the small tensors and counts the packed bytes.
  WeightLoader(kernels::Queue& queue, WeightProvider& provider, const LoadOptions& options,
               Weights& weights, const MakeRoom& make_room)
      : queue_(queue),
        provider_(provider),
        options_(options),
        weights_(weights),
        make_room_(make_room) {}

  void set_layer(std::int32_t layer) { layer_ = layer; }
  DType activation() const { return options_.activation; }

  /// Whether the files have a weight that can be absent or stored otherwise.
  bool has(std::string_view role) const;

  /// A stored matrix, to take rows from; valid until the next pack().
  kernels::WeightSource stored(std::string_view role, std::int64_t rows, std::int64_t columns,
                               std::int64_t experts = 1, std::int32_t expert = -1);

  /// Packs rows of what was stored() since the last call, and gives the memory of those back.
  /// Quantised as the options ask, or as told.
  kernels::Weight pack(const kernels::WeightSource& source);
  kernels::Weight pack(const kernels::WeightSource& source, DType dtype,
                       kernels::Quantize quantize = kernels::Quantize::none);

  /// A stored matrix as it is.
  kernels::Weight matrix(std::string_view role, std::int64_t rows, std::int64_t columns,
                         std::int64_t experts = 1);
  /// The same of one that is not quantised with the others.
  kernels::Weight matrix_as(kernels::Quantize quantize, std::string_view role, std::int64_t rows,
                            std::int64_t columns);

  /// Stored matrices below each other, as one: role and rows of each.
  kernels::Weight stacked(std::initializer_list<std::pair<std::string_view, std::int64_t>> parts,
                          std::int64_t columns);
  kernels::WeightSource stacked_source(
      std::initializer_list<std::pair<std::string_view, std::int64_t>> parts, std::int64_t columns);

  /// A small tensor as f32 on the queue's device: [rows], or [rows, columns].
  kernels::Tensor vector(std::string_view role, std::int64_t rows, std::int64_t columns = 0);

  /// The same `times` times behind each other, [times * rows].
  kernels::Tensor repeated(std::string_view role, std::int64_t rows, std::int64_t times);

 private:
  float* upload(const std::vector<float>& values);
  template <typename Make>
  auto with_room(const Make& make) const;

  kernels::Queue& queue_;
  WeightProvider& provider_;
  const LoadOptions& options_;
  Weights& weights_;
  const MakeRoom& make_room_;
  std::int32_t layer_ = -1;
  std::vector<std::pair<std::string, std::int32_t>> read_;  // role and expert, since pack()
};

}  // namespace hyb::models
