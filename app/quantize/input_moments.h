#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "kernels/linear/input_observer.h"
#include "models/weight_index.h"
#include "models/weights.h"

namespace hyb::app {

/// The second moments of what a model's matrices multiply, column by column, of all rows that they
/// saw. The same for any number of threads.
class InputMoments : public kernels::InputObserver {
 public:
  /// To be called for every weight while the model is loaded: says which tensors it is made of.
  models::PackedCall packed_call();

  void see(kernels::Queue& queue, const Inputs& inputs) override;

  /// Returns the weight of each column of a tensor: its inputs' mean square over that of all
  /// columns, plus a little, so that no column counts for nothing. All 1 where no row was seen: an
  /// expert that no token chose, or a weight that packed_call() was not called for.
  std::vector<float> importance(const models::WeightKey& key, std::int64_t columns) const;

 private:
  struct Sums {
    std::vector<std::vector<double>> squares;  ///< [experts][columns]
  };
  std::map<const std::byte*, Sums> by_weight_;  ///< by the first byte of the packed weight
  std::map<models::WeightKey, const std::byte*> weight_of_;
};

}  // namespace hyb::app
