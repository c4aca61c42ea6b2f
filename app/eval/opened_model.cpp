#include "app/eval/opened_model.h"

#include <algorithm>

#include <fmt/format.h>

#include "app/base/texts.h"
#include "app/request/model_texts.h"
#include "app/request/text_input.h"
#include "app/runtime/memory_plan.h"
#include "core/base/error.h"
#include "kernels/card.h"

namespace hyb::app {
namespace {

constexpr std::int32_t step_tokens_max = 512;
/// Limit on the logits that a step leaves: there are fewer rows where the vocabulary is large.
constexpr std::size_t logits_bytes_max = std::size_t{64} << 20;
constexpr std::int32_t rows_min = 8, rows_max = 128;
constexpr std::int32_t window_min = 4;
constexpr std::int32_t window_usual = 512;  ///< where a model does not state its positions
constexpr std::size_t pool_bytes_min = std::size_t{8} << 20;

std::int32_t window_of(const BareModel& model, std::int32_t context) {
  const models::Plan& plan = model.model.plan;
  const bool is_stated = plan.positions_max > 0;
  const std::int32_t window = context > 0 ? context : is_stated ? plan.positions_max : window_usual;
  if (window < window_min || (is_stated && plan.has_rope() && window > plan.positions_max)) {
    throw Error(ErrorKind::usage,
                fmt::format("--context {}: a window has {} tokens at least{}", context, window_min,
                            is_stated ? fmt::format(", {} at most", plan.positions_max) : ""));
  }
  return window;
}

}  // namespace

std::string read_evaluated(const std::string& file) {
  std::string text = read_text_of(file, input_bytes_max);
  check_utf8(text, file);
  if (text.find('\0') != std::string::npos) {
    throw Error(ErrorKind::usage, file + ": is no text: it has NUL bytes");
  }
  return text;
}

OpenedModel::OpenedModel(const RunSettings& settings, std::int32_t context, Precision snapshots,
                         const models::PackedCall& packed)
    : bare_(open_bare(settings, {}, packed)),
      window_(window_of(bare_, context)),
      texts_(read_texts(settings.source)),
      layout_(models::memory_layout_of(bare_.model.geometry, pools(snapshots))),
      runner_(bare_.queue, bare_.model.plan, bare_.model.weights, bare_.model.geometry,
              runner_options()),
      pool_(runner_.capacity().memory) {}

std::size_t OpenedModel::bytes() const {
  return bare_.model.weights.bytes() + runner_.pool_bytes() + runner_.workspace_bytes();
}

models::MemoryLayoutOptions OpenedModel::pools(Precision snapshots) const {
  const models::Geometry& geometry = bare_.model.geometry;
  const auto pages = static_cast<std::size_t>(window_ / geometry.page_tokens + 2);
  const bool is_packed = snapshots == Precision::int8;
  const std::size_t sequence = pages * geometry.page_bytes + 3 * geometry.slot_bytes +
                               (is_packed ? models::snapshot_layout(geometry).bytes : 0);
  // Superblocks go to one view at a time: each view may have one that is nearly empty.
  return {.pool_bytes = std::max(8 * sequence, pool_bytes_min),
          .packed = is_packed,
          .flat = {},
          .handle_bytes_min = kernels::handle_bytes_min(bare_.queue.device())};
}

models::RunnerOptions OpenedModel::runner_options() const {
  const std::size_t row_bytes = static_cast<std::size_t>(vocab()) * sizeof(float);
  const auto rows = static_cast<std::int32_t>(logits_bytes_max / row_bytes);
  return {.memory = layout_,
          .step_tokens = std::min(window_, step_tokens_max),
          .sequences_max = 1,
          .positions_max = window_,
          .vocab_used = vocab(),
          .mapping = bare_.settings.mapping,
          .graphs = bare_.settings.graphs,
          .step_samples = std::clamp(rows, rows_min, rows_max)};
}

}  // namespace hyb::app
