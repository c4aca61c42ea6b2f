#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "app/runtime/model_outline.h"

namespace hyb::app {

/// "2026-01-31T12:00:00Z"
std::string utc_now();

/// Setting that all rows share.
struct BenchSetting {
  std::string build_commit;
  std::string cpu;
  std::string gpu = {};        ///< empty: none is used
  std::string cublaslt = {};   ///< which one, or why there is none; empty on the CPU
  std::string device;          ///< "cpu"
  std::string isa;             ///< "avx512", ...
  std::string model_filename;  ///< the model's name or folder
  std::string model_type;      ///< "granitemoehybrid BF16"
  std::size_t model_bytes = 0;
  std::int64_t parameters = 0;
  int threads = 0;          ///< of all lanes
  int prefill_threads = 0;  ///< of them, those of a lane of prompts; 0: there is one lane
  std::int32_t chunk_tokens = 0;
  std::string kv_dtype;  ///< "bf16", as --kv-dtype says it
  /// True if keys and values have another type than activations.
  bool has_own_kv_dtype = false;
};

/// Describes this model on this machine. `version` is what --version prints.
BenchSetting setting_of(const ModelSource& source, const models::Model& model,
                        kernels::Queue& queue, std::int32_t chunk_tokens,
                        const std::string& version);

/// "granite-4.0-h-350m, granitemoehybrid BF16, 648.9 MiB, 340.33 M parameters", and "keys and
/// values fp8" where they are of a type of their own.
std::string model_text(const BenchSetting& setting);

/// "AMD EPYC, cpu avx512, 2 threads", "..., 4 threads: 3 for answers, 1 for prompts", "NVIDIA H100,
/// cuda sm_90".
std::string machine_text(const BenchSetting& setting);

}  // namespace hyb::app
