#pragma once

#include <string>

#include "app/bench/comparison.h"

namespace hyb::app {

/// What `hyb bench compare` takes.
struct CompareJob {
  std::string before, after;  ///< files
  double threshold_percent = 5;
  double alpha = 0.05;
};

/// Prints the table. Returns 0, or 6 where a figure has become worse.
int compare_files(const CompareJob& job);

}  // namespace hyb::app
