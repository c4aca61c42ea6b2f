#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "models/config.h"
#include "models/plan.h"

namespace hyb::models {

class GgufConfig;
class GgufKeys;

/// One tensor of a family: the role under which a part asks for it and the name in the published
/// files. In the name, a leading `*` is each of the family's trunks, `{}` the layer index, and a
/// second `{}` the expert index. Several rows of one role are spellings in use, the preferred one
/// first. Where a family names two layouts, the files decide.
struct TensorName {
  Role role;
  std::string_view name;
};

struct GgufArchitecture;

/// Most families have their text part here.
inline constexpr std::string_view usual_trunks[] = {"model"};

/// A family: config.json -> Plan, and where its tensors are found. One file in families/ each.
struct Family {
  std::span<const std::string_view> model_types = {};
  Plan (*plan)(const Config&) = nullptr;
  std::span<const TensorName> names = {};
  /// Returns how GGUF files have its models; null if they are read from folders alone.
  std::span<const GgufArchitecture> (*gguf)() = nullptr;
  std::span<const std::string_view> trunks = usual_trunks;  ///< what replaces `*` in names
  /// Prefixes of tensors that are known and not used: draft layers, vision.
  std::span<const std::string_view> unused = {};
  /// The same in the draft layer, whose index is counted from 0.
  std::span<const std::string_view> draft_trunks = {};
  /// Reads what config.json says of a draft layer; null: the family has none.
  std::optional<DraftLayer> (*draft)(const Config&) = nullptr;
  /// Layers after the last one of the plan are of drafts, and not used.
  bool drafts_follow = false;
};

/// Form in which llama.cpp's converter writes a family's models: metadata -> config.json -> Plan,
/// and where the tensors of a GGUF file are found.
struct GgufArchitecture {
  std::string_view name;  ///< general.architecture
  GgufConfig (*config)(const GgufKeys&);
  Family family;  ///< its plan knows what the converter did to the weights
};

// clang-format off
/// One line per family, sorted by name. Each has a namespace of its own, in which all may have the
/// same names for their plan and tensors.
namespace bailing_hybrid { extern const Family family; }
namespace bamba { extern const Family family; }
namespace cohere2 { extern const Family family; }
namespace falcon_h1 { extern const Family family; }
namespace gemma { extern const Family gemma2, gemma3; }
namespace gemma3n { extern const Family family; }
namespace gemma4 { extern const Family family; }
namespace gpt_oss { extern const Family family; }
namespace granite { extern const Family family; }
namespace granite_swa { extern const Family family; }
namespace granite_hybrid { extern const Family family; }
namespace jamba { extern const Family family; }
namespace kimi_linear { extern const Family family; }
namespace lfm2 { extern const Family family; }
namespace lfm3 { extern const Family family; }
namespace llama { extern const Family family; }
namespace llama4 { extern const Family family; }
namespace mamba { extern const Family family; }
namespace mamba2 { extern const Family family; }
namespace mellum { extern const Family family; }
namespace minimax { extern const Family family; }
namespace ministral3 { extern const Family family; }
namespace nemotron_h { extern const Family family; }
namespace olmo_hybrid { extern const Family family; }
namespace qwen2 { extern const Family family; }
namespace qwen3 { extern const Family family; }
namespace qwen3_next { extern const Family qwen3_5, qwen3_next; }
namespace smollm3 { extern const Family family; }
namespace zamba2 { extern const Family family; }
// clang-format on

/// Every known family, in that order.
std::span<const Family* const> families();

/// Describes a model; `with_drafts`: with its draft layer, where config.json says that there is
/// one.
Plan plan_of(const Config& config, bool with_drafts);

/// Says whether a tensor of this name is for pictures or sound, which no family reads.
bool is_of_other_media(std::string_view tensor);

/// The family of config's model_type. Throws Error(model) that lists the known ones.
const Family& family_of(const Config& config);

}  // namespace hyb::models
