#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "app/bench/load_driver.h"
#include "app/bench/workload.h"
#include "app/machine/environment.h"
#include "core/base/dtype.h"
#include "core/engine/trace.h"

namespace hyb::app {

/// The prefix cache of another system, simulated: says how many tokens of each prompt it would have
/// reused, request after request.
class ReusePrediction {
 public:
  virtual ~ReusePrediction() = default;
  /// The request outlives the prediction.
  virtual std::int32_t reused(const ReplayRequest& request) = 0;
};

/// Makes the prediction of a policy with a budget of memory.
using PredictReuse = std::function<std::unique_ptr<ReusePrediction>(const std::string& policy,
                                                                    std::size_t budget_bytes)>;

/// Policies as the laboratory (app/replay) has them. Nothing here includes it: the command passes
/// them on.
struct PolicyLab {
  /// Throws Error(usage) where `hyb replay` has no policy of that name.
  void (*check)(const std::string& policy);
  /// For a model whose keys and values are of `kv_dtype`. Throws as ModelSource::find and for a bad
  /// config.json.
  PredictReuse (*predictor)(const std::string& model, DType kv_dtype,
                            const Environment& environment);
};

/// True if the policy is simulated; false for "" and for the engine's own: gd, lru, none.
bool is_simulated(const std::string& policy);

/// A trace under a simulated policy: it says how much of each prompt would have been reused, and
/// the model really resumes there and runs the rest.
struct SimulatedRun {
  Engine& engine;
  std::span<const ReplayRequest> trace;
  TraceOptions options;  ///< the trace as it is: neither its times nor a scale
  ReusePrediction& prediction;
  /// Called around the stretches that count: preparing a prefix is not measured.
  std::function<void(bool is_measured)> measure;
  std::function<void(std::size_t ended)> progress;
  std::function<bool()> is_stopped;
};

/// Requests are served one after the other, as the policy sees them. For each one the engine
/// forgets everything, prefills what the policy reuses, and is then measured; the duration is of
/// measured stretches alone.
LoadResult run_simulated(const SimulatedRun& run, Timer& timer);

}  // namespace hyb::app
