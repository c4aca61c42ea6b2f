#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/model/model_source.h"
#include "app/runtime/run_settings.h"
#include "kernels/queue.h"
#include "models/families.h"
#include "models/geometry.h"
#include "models/model.h"
#include "models/runner.h"

namespace hyb::app {

class ProgressLine;

/// Holds what config.json says of a model, and the sizes that follow; no weight is read for it.
struct ModelOutline {
  models::Config config;
  const models::Family* family;
  models::Plan plan;
  models::GeometryOptions sizes;
  models::Geometry geometry;
  std::optional<ModelSource> head;  ///< the head that the plan drafts by
};

/// --draft-model, where it is a head and --spec is its kind or auto. Throws Error(usage) where
/// --spec is another kind.
std::optional<ModelSource> head_of(const RunSettings& settings);

/// The word of --kv-dtype for it: f32, bf16 or fp8.
std::string kv_dtype_name(DType dtype);

/// Names the type of linear weights in memory: the types of a GGUF file's blocks, that of
/// --quantize, F16 or F32, FP8, MXFP4, or BF16. Of several that occur it is the first of these.
std::string weights_name(const models::LoadOptions& load);

/// "4.0 KiB per token", "2.0 KiB per token, 1.5 MiB per sequence in windows".
std::string kv_text(const models::Geometry& geometry);

/// Says for messages which options make weights and activations smaller; empty if none does.
std::string smaller_weights_text(const models::LoadOptions& load, bool fits_in_12_bits);

/// Memory of all weights on the device, small tensors included; of published FP8 an estimate, see
/// models::packed_bytes.
std::size_t weight_bytes(const models::Plan& plan, kernels::Device device,
                         const models::LoadOptions& load);

/// Returns the bytes that --lossless on is likely to save; 0 if it is on, or not for these weights.
std::size_t lossless_saves(const models::Plan& plan, kernels::Device device,
                           const models::LoadOptions& load);

/// Thresholds of --lossless auto. Measured with AVX-512 on two cores, the product of a matrix of
/// 2048 x 768 in 12 bits against bf16: 1.3 to 1.5 times as fast with 1 to 8 rows, 1.1 with 12, 1.07
/// with 16, 0.95 with 24, 0.98 with 32 and 48, 0.99 with 64, 1.0 from 96 on; with AVX2 1.5 to 1.9
/// with 1 to 3 rows, 1.2 with 4, 1.0 to 1.05 with 6 to 16, 0.93 with 24, 0.98 from 32 on (hyb bench
/// MODEL -n 32 -p 0 -b 1,8,16,24,64 --lossless on, and off, shows it of a whole model). Packing
/// takes some tokens' time.
struct WeightUse {
  static constexpr std::int32_t sequences_of_12_bits = 16, tokens_of_12_bits = 8;
  std::int32_t sequences = 1;      ///< at once
  std::int32_t answer_tokens = 0;  ///< at most, of one run; 0: not known

  bool prefers_12_bits() const {
    return sequences <= sequences_of_12_bits &&
           (answer_tokens == 0 || answer_tokens >= tokens_of_12_bits);
  }
};

/// Sizes for --dtype, --quantize, --lossless, --kv-dtype, --state-dtype and --page-tokens. Reads
/// config.json,
/// and the headers of the weights, where they are there and it indicates published FP8 or
/// activations are f32. Throws Error(model) for a config that hyb cannot run, Error(usage) for
/// types that do not go together.
ModelOutline outline_of(const RunSettings& settings, const WeightUse& use = {});

/// Returns the matrices of weights in 12 bits, sampled from the files, and corrects the outline's
/// sizes by them. Empty for other weights, or without files.
std::vector<models::LosslessMatrix> sample_lossless(const RunSettings& settings,
                                                    ModelOutline& outline);

/// Says how many files a folder lacks of those that its index lists, and how large all of them are,
/// by the index or else by config.json; "" if none is missing.
std::string missing_files_text(const ModelSource& source, const ModelOutline& outline);

/// Writes what the weights of a format that hyb does not read take as published, by the files where
/// they are there, else by config.json, and in bf16; then throws as models::refuse_quantized does.
/// Returns where hyb reads the format.
void refuse_unread_format(const ModelSource& source, bool as_json);

/// Throws Error(model) for weights that are neither there nor to be made up: more memory would not
/// help. Check this before whether the model fits.
void check_loadable(const ModelSource& source, const RunSettings& settings);

/// Reads or generates the weights. `make_room` is called where the device has no memory for one;
/// `progress`, unless it is null, shows how much is loaded.
/// Throws Error(model) when there are none to read, or others than the plan wants; Error(memory),
/// with the numbers, where they have no room.
models::Model load_weights_of(const RunSettings& settings, const ModelOutline& outline,
                              kernels::Queue& queue, const models::MakeRoom& make_room = {},
                              ProgressLine* progress = nullptr,
                              const models::PackedCall& packed = {});

/// A model without an engine, for commands that drive a runner themselves.
struct BareModel {
  RunSettings settings;
  ModelOutline outline;
  kernels::Queue queue;
  models::Model model;

  /// Bytes that a runner takes besides the weights: pools and workspace.
  std::size_t runner_bytes(const models::RunnerOptions& options) const;
};

/// Throws Error(memory) before a weight is read when the weights alone are over the budget.
BareModel open_bare(const RunSettings& settings, const WeightUse& use = {},
                    const models::PackedCall& packed = {});

}  // namespace hyb::app
