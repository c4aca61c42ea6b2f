#pragma once

#include <string>

#include "app/device.h"
#include "app/model_source.h"
#include "app/options.h"
#include "kernels/queue.h"
#include "models/families.h"
#include "models/geometry.h"
#include "models/model.h"
#include "models/runner.h"

namespace hyb::app {

/// What config.json says of a model and the sizes that follow from it, without reading a weight.
struct ModelOutline {
  models::Config config;
  const models::Family* family;
  models::Plan plan;
  DType activation;
  models::GeometryOptions sizes;
  models::Geometry geometry;
};

/// As --kv-dtype says it: f32, bf16 or fp8.
std::string kv_dtype_name(DType dtype);

/// What linear weights are in memory: BF16, F16, F32, FP8, q8 or q4; of several published types the
/// one that is named first in: FP8, F16, others.
std::string weights_name(const models::LoadOptions& load);

/// What makes the weights smaller, and what is of their type, for messages; empty: nothing.
std::string smaller_weights_text(const models::LoadOptions& load);

/// Memory of all weights on the device, small tensors included; of published FP8 an estimate, see
/// models::packed_bytes.
std::size_t weight_bytes(const models::Plan& plan, kernels::Device device,
                         const models::LoadOptions& load);

/// What one value of --graphs means; empty: the default.
models::GraphOptions parse_graphs(const std::string& mode);
/// --graphs. Throws Error(usage) where it is given without a card.
models::GraphOptions graphs_of(const ModelOptions& options);

/// Sizes for --dtype, --quantize, --kv-dtype, --state-dtype and --page-tokens. Reads config.json,
/// and the headers of the weights, where they are there and it indicates published FP8 or
/// activations are f32. Throws Error(model) for a config that hyb cannot run, Error(usage) for
/// types that do not go together.
ModelOutline outline_of(const ModelSource& source, const ModelOptions& options);

/// A queue on the device that --device means.
kernels::Queue make_queue(const ModelOptions& options);

/// What a folder lacks of the files that its index lists, in words: how many, and how large all of
/// them are, by the index, else by config.json. "" where nothing is lacking.
std::string missing_files_text(const ModelSource& source, const ModelOutline& outline);

/// Writes what the weights of a format that hyb does not read take as published, by the files where
/// they are there, else by config.json, and in bf16; then throws as models::refuse_quantized does.
/// Returns where hyb reads the format.
void refuse_unread_format(const ModelSource& source, bool as_json);

/// Throws Error(model) for weights that are neither there nor to be made up: more memory would not
/// help. Check this before whether the model fits.
void check_loadable(const ModelSource& source, const ModelOptions& options);

/// Reads or generates the weights. `make_room` is called where the device has no memory for one.
/// Throws Error(model) when there are none to read, or others than the plan wants; Error(memory),
/// with the numbers, where they have no room.
models::Model load_weights_of(const ModelSource& source, const ModelOutline& outline,
                              const ModelOptions& options, kernels::Queue& queue,
                              const models::MakeRoom& make_room = {});

/// A model without an engine, for commands that drive a runner themselves.
struct BareModel {
  ModelSource source;
  ModelOutline outline;
  std::size_t budget;  ///< bytes that --memory allows for all of hyb
  models::GraphOptions graphs;
  kernels::Queue queue;
  models::Model model;

  /// Bytes that a runner takes besides the weights: pools and workspace.
  std::size_t runner_bytes(const models::RunnerOptions& options) const;
};

/// Throws Error(memory) before a weight is read when the weights alone are over the budget.
BareModel open_bare(const ModelOptions& options, const Environment& environment);

}  // namespace hyb::app
