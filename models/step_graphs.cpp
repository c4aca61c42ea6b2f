#include "models/step_graphs.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/log.h"
#include "kernels/transfer.h"

namespace hyb::models {
namespace {

/// Shapes that are remembered: all decode sizes up to 256 rows, and as many mixed ones.
constexpr std::size_t entries_max = 64;

std::int64_t size_of_table(const kernels::Tensor& table) {
  return table.empty() ? 0 : table.dim(0);
}

}  // namespace

StepGraphs::StepGraphs(kernels::Queue& queue, Decoder& decoder, StepStaging& staging,
                       std::int64_t rows_max, const GraphOptions& options)
    : queue_(queue), decoder_(decoder), staging_(staging), rows_max_(rows_max), options_(options) {}

void StepGraphs::choose(const GraphOptions& options) {
  if (options == options_) return;
  kernels::wait(queue_);  // a recording may still be under way
  entries_.clear();
  options_ = options;
}

std::int64_t StepGraphs::padded_rows(std::int64_t rows, std::int64_t rows_max) {
  std::int64_t padded = 1;
  while (padded < rows && padded < 8) padded *= 2;
  if (padded < rows) padded = (rows + 7) / 8 * 8;
  return std::min(padded, rows_max);
}

kernels::Tensor StepGraphs::run(const Step& step) {
  if (queue_.device() == kernels::Device::cpu) {
    const StepStaging::Staged staged = staging_.stage(step);
    return decoder_.run(staged.tables, staged.sample_rows);
  }
  // Padded whether recorded or not: the routes of products go by the number of rows.
  const bool decode = is_decode(step);
  const StepStaging::Staged staged =
      staging_.stage(step, decode ? padded_rows(std::ssize(step.spans), rows_max_) : 0);
  if (!(decode ? options_.decode : options_.mixed)) {
    return decoder_.run(staged.tables, staged.sample_rows);
  }
  Entry& entry = entry_of({.tokens = staged.tables.tokens.dim(0),
                           .spans = staged.tables.position.dim(0),
                           .samples = size_of_table(staged.sample_rows),
                           .pages = staged.tables.pages.data});
  if (entry.recording == nullptr && entry.last_use != 0) record(entry, staged);
  entry.last_use = ++uses_;
  if (entry.recording == nullptr) return decoder_.run(staged.tables, staged.sample_rows);
  entry.recording->replay();
  ++replayed_;
  return entry.logits;
}

/// The shape's entry; a new one takes the place of the one that was not used for longest.
StepGraphs::Entry& StepGraphs::entry_of(const Shape& shape) {
  const auto found = std::ranges::find(entries_, shape, &Entry::shape);
  if (found != entries_.end()) return *found;
  Entry entry{.shape = shape, .last_use = 0, .recording = nullptr, .logits = {}};
  if (entries_.size() < entries_max) return entries_.emplace_back(std::move(entry));
  kernels::wait(queue_);  // its work may still be under way
  Entry& oldest = *std::ranges::min_element(entries_, {}, &Entry::last_use);
  oldest = std::move(entry);
  return oldest;
}

/// At a shape's second step: the first loads what a recording may not load, and shapes that come
/// once are not worth one.
void StepGraphs::record(Entry& entry, const StepStaging::Staged& staged) {
  try {
    entry.recording = kernels::record(
        queue_, [&] { entry.logits = decoder_.run(staged.tables, staged.sample_rows); });
    ++recorded_;
    log::debug(fmt::format("graph {}: {} tokens, {} sequences, {} sampled", recorded_,
                           entry.shape.tokens, entry.shape.spans, entry.shape.samples));
  } catch (const Error& error) {
    log::warning(fmt::format("a step cannot be recorded as a CUDA graph, all run eagerly now: {}",
                             error.what()));
    options_ = {.decode = false, .mixed = false};
  }
}

}  // namespace hyb::models
