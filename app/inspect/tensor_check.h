#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/model_outline.h"
#include "core/io/tensor_files.h"
#include "models/weight_check.h"

namespace hyb::app {

using models::TensorVerdict;

/// "ok", "missing", "wrong", "unused" (known, and of no use to hyb), "extra" (not known).
const char* name_of(TensorVerdict verdict);

/// A tensor that the plan asks for, or that is in the files, or both.
struct TensorRow {
  std::string name;
  std::string dtype;                ///< "BF16"; "" when it is missing
  std::vector<std::int64_t> shape;  ///< in the files; as asked for when it is missing
  TensorVerdict verdict;
  std::string note;  ///< what is wrong
};

/// The tensors of a model folder held against its plan; nothing is thrown for what is wrong, so
/// that all of it can be shown.
struct TensorCheck {
  std::vector<TensorRow> rows;                 ///< in the order of the plan, then all others
  std::map<std::string, std::int64_t> dtypes;  ///< of what is in the files: how many of each
  std::size_t files = 0;
  std::uint64_t bytes = 0;

  std::int64_t count(TensorVerdict verdict) const;

  /// Whether the model could be loaded.
  bool is_complete() const {
    return count(TensorVerdict::missing) == 0 && count(TensorVerdict::wrong) == 0;
  }
};

TensorCheck check_tensors(const ModelOutline& outline, const TensorFiles& files);

/// The rows that a plan asks for, all of them missing: what a folder without weights lacks.
TensorCheck required_tensors(const ModelOutline& outline);

/// "[12, 4]".
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace hyb::app
