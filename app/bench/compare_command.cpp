#include "app/bench/compare_command.h"

#include <nlohmann/json.hpp>

#include "app/ui/process.h"
#include "core/base/log.h"
#include "core/io/mapped_file.h"

namespace hyb::app {
namespace {

constexpr int regression = 6;

Json read_rows(const std::string& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const JsonLimits limits = {.bytes_max = std::size_t{1} << 30};
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, limits);
}

}  // namespace

int compare_files(const CompareJob& job) {
  const Json before = read_rows(job.before), after = read_rows(job.after);
  const std::vector<Change> changes =
      compare(before, after, {.threshold = job.threshold_percent / 100, .alpha = job.alpha});
  const std::string difference = setting_difference(before, after);
  if (!difference.empty()) log::warning("not the same setting: " + difference);
  write_stdout(markdown_text(compare_table(changes)));
  return has_regression(changes) ? regression : 0;
}

}  // namespace hyb::app
