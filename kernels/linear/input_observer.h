#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/base/dtype.h"
#include "kernels/queue.h"
#include "kernels/weight.h"

namespace hyb::kernels {

/// Is shown the rows that products on the CPU read, in the order of the calls and before each
/// product, by the thread that calls: Queue::set_observer. Without one a product costs one test
/// more.
class InputObserver {
 public:
  virtual ~InputObserver() = default;

  /// The rows that `weight`'s matrix of this expert is about to multiply.
  struct Inputs {
    const Weight& weight;
    std::int64_t expert;
    DType dtype;        ///< f32 or bf16
    std::int64_t rows;  ///< each of weight.columns() numbers
    std::function<const std::byte*(std::int64_t)> row;
  };
  virtual void see(Queue& queue, const Inputs& inputs) = 0;
};

}  // namespace hyb::kernels
