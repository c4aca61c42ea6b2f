#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "app/model_outline.h"
#include "core/base/json.h"

namespace hyb::app {

/// What is the same in all rows.
struct BenchSetting {
  std::string build_commit;
  std::string cpu;
  std::string gpu;             ///< empty: none is used
  std::string device;          ///< "cpu"
  std::string isa;             ///< "avx512", ...
  std::string model_filename;  ///< the model's name or folder
  std::string model_type;      ///< "granitemoehybrid BF16"
  std::size_t model_bytes = 0;
  std::int64_t parameters = 0;
  int threads = 0;
  std::int32_t chunk_tokens = 0;
  std::string kv_dtype;  ///< "bf16", as --kv-dtype says it
};

/// Of this model on this machine. `version` is what --version prints.
BenchSetting setting_of(const ModelSource& source, const ModelOutline& outline,
                        const models::Model& model, const kernels::Queue& queue,
                        std::int32_t chunk_tokens, const std::string& version);

/// Under llama-bench's keys, build_commit to type_v.
Json setting_json(const BenchSetting& setting);

}  // namespace hyb::app
