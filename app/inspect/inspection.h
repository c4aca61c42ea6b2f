#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/inspect/rank_exchange.h"
#include "app/request/template_probe.h"
#include "app/runtime/model_outline.h"
#include "core/base/json.h"
#include "core/io/tensor_files.h"
#include "models/plan.h"
#include "models/roofline.h"
#include "models/weight_index.h"

namespace hyb::app {

/// Layers that have a part of the same kind and size.
struct PartGroup {
  std::string kind, text;  ///< as models::PartText
  std::vector<std::int32_t> layers;
};

/// In the order of first appearance.
std::vector<PartGroup> part_groups(const models::Plan& plan);

/// "0-4, 6, 8-9".
std::string runs_text(const std::vector<std::int32_t>& numbers);

/// Returns how many layers hold a part of each kind: {"attention": 4, "ssd": 36, ...}.
Json layer_counts(const models::Plan& plan);

using models::TensorVerdict;

/// A tensor that the plan needs, or that is in the files, or both.
struct TensorRow {
  std::string name;
  std::string dtype = {};           ///< "BF16"; "" when it is missing
  std::vector<std::int64_t> shape;  ///< in the files; what the plan needs when it is missing
  TensorVerdict verdict;
  std::string note = {};  ///< what is wrong
};

/// The tensors of a model folder compared with its plan; faults are entries, not exceptions, so
/// that all of them can be shown.
struct TensorCheck {
  std::vector<TensorRow> rows;                 ///< in the order of the plan, then all others
  std::map<std::string, std::int64_t> dtypes;  ///< of what is in the files: how many of each
  std::size_t files = 0;
  std::uint64_t bytes = 0;

  std::int64_t count(TensorVerdict verdict) const;

  /// True if the model could be loaded.
  bool is_complete() const {
    return count(TensorVerdict::missing) == 0 && count(TensorVerdict::wrong) == 0;
  }
};

TensorCheck check_tensors(const models::Plan& plan, const models::Family& family,
                          const TensorFiles& files);

/// The tensors that a plan needs, all of them missing: those of a folder without weights.
TensorCheck required_tensors(const ModelOutline& outline);

/// "[12, 4]".
std::string shape_text(const std::vector<std::int64_t>& shape);

/// All that `hyb inspect` reports. Reads headers and texts, of the weights samples at most.
struct Inspection {
  std::string name;
  ModelOutline outline;
  std::int64_t parameters = 0;
  std::int64_t active_parameters = 0;  ///< that one token goes through, the head included
  std::size_t weight_bytes = 0;        ///< of the weights in memory
  std::vector<models::LosslessMatrix> lossless = {};  ///< as app::sample_lossless
  /// In words; empty: none, or none that hyb runs. The tensors are checked with it.
  std::string draft_layer = {};
  double decode_bytes = 0;                  ///< moved for one token at position decode_position
  std::optional<TensorCheck> tensors = {};  ///< none: the folder has no weights, or not all
  /// Facts about a GGUF file, and which tensors have which types ("Q4_K, Q6_K": "ffn_down").
  std::vector<std::pair<std::string, std::string>> gguf = {};
  std::string missing_files = {};  ///< as missing_files_text
  bool is_partial = false;         ///< some files of the weights are there, others missing
  /// What there is of each, in words, or why it can't be used.
  std::string tokenizer = {}, chat_template = {}, generation_config = {};
  bool has_tokenizer = false, has_chat_template = false;
  bool has_defects = false;  ///< of these three: one is there and can't be used
  std::optional<TemplateTraits> traits =
      {};  ///< of the chat template, where there is a tokenizer too
  std::optional<RankExchange> exchange = {};  ///< with --ranks

  static constexpr std::int64_t decode_position = 1024;
};

Inspection inspect(const RunSettings& settings);

/// The tensors that are listed one by one: those that are missing or wrong, with `unused` also
/// those that nothing uses, or all.
enum class TensorList : std::uint8_t { faults, unused, all };

/// For people.
std::string inspection_text(const Inspection& inspection, TensorList list, bool has_overview);

Json inspection_json(const Inspection& inspection, bool all_tensors);

}  // namespace hyb::app
