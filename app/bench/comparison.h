#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/ui/table.h"
#include "core/base/json.h"

namespace hyb::app {

/// Options of `hyb bench compare`.
struct CompareOptions {
  std::string before = "the first file", after = "the second file";  ///< paths, named in messages
  double threshold_percent = 5;  ///< a change of the mean by less is none
  double alpha = 0.05;           ///< and so is one that chance alone brings about as often
};

enum class Difference : std::uint8_t {
  same,
  better,
  worse,
  missing,  ///< measured before, and not any more
  too_few   ///< beyond the threshold, but samples are too few to decide
};

/// One figure of one row, before and after.
struct Change {
  /// "pp512 @ d4096", "random 1024+128, closed loop, 4 at once, cold"; the mode of --graphs and the
  /// number of prompts where rows of one file differ in nothing else.
  std::string row;
  std::string figure;            ///< "t/s", "TTFT ms", ...
  double before = 0, after = 0;  ///< means
  std::optional<double> p;
  Difference verdict = Difference::same;
};

/// Compares two outputs of `hyb bench -o json`: rows of the same name, figure by figure, with
/// one value per repetition. Rows that only `after` has are new and left
/// out. Throws Error(model) for what is no such output, where two rows of a file bear one name, and
/// where no row is in both.
std::vector<Change> compare(const Json& before, const Json& after, const CompareOptions& options);

bool has_regression(const std::vector<Change>& changes);

Table compare_table(const std::vector<Change>& changes);

/// Says what differs between both settings (machine, model, build; of the rows that are compared
/// the mode of --graphs and the number of prompts); empty if nothing does.
std::string setting_difference(const Json& before, const Json& after);

/// Prints the table. Returns 0, or 6 where a figure has become worse.
int compare_files(const CompareOptions& options);

}  // namespace hyb::app
