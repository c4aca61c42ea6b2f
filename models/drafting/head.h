#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/io/tensor_files.h"
#include "models/config.h"
#include "models/families.h"
#include "models/plan.h"

namespace hyb::models {

/// The folder of a head: draft layers that are published apart from their model.
struct HeadFolder {
  Config config;
  std::optional<TensorFiles> files = {};  ///< none: config.json alone
};

enum class HeadKind : std::uint8_t { eagle3, dflash };

/// Names the kind as people write it: "EAGLE-3".
std::string_view name_of(HeadKind kind);

/// Returns the kind of head that config.json describes; nullopt: it is no head's.
std::optional<HeadKind> head_kind(const Config& config);

/// The draft layers that a head is for a model. Throws Error(model) where it is none, and as
/// eagle3_of() and dflash_of().
DraftLayer head_of(const Config& config, const Plan& plan);

/// The names of its tensors.
const Family& head_family(HeadKind kind);
bool is_head_family(const Family& family);

/// Throws Error(model) that says what to do with a head that is given for a model.
void refuse_head(const Config& config);

}  // namespace hyb::models
