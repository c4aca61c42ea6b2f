#pragma once

#include "app/batch/hash128.h"
#include "app/model_source.h"

namespace hyb::app {

/// What makes a model's answers its own: the texts of config, tokenizer, chat template and
/// generation defaults, the name, dtype and shape of every tensor, and some bytes of each. Reads a
/// few KiB per tensor.
Hash128 model_identity(const ModelSource& source, bool with_tensors);

}  // namespace hyb::app
