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
                       kernels::DeviceSampler* sampler, std::int64_t rows_max,
                       std::int32_t vocab_used, const GraphOptions& options)
    : queue_(queue),
      decoder_(decoder),
      staging_(staging),
      sampler_(sampler),
      rows_max_(rows_max),
      vocab_used_(vocab_used),
      options_(options) {}

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
  const StepStaging::Staged staged = staging_.stage(step);
  return decoder_.run(staged.tables, staged.sample_rows);
}

void StepGraphs::stage(const Step& step, std::span<const kernels::SampleRow> rows,
                       bool keeps_tokens) {
  // Padded whether recorded or not: the routes of products go by the number of rows.
  decodes_ = is_decode(step);
  require(decodes_ || !keeps_tokens, "graphs: only a decode step's tokens may be there already");
  const std::int64_t padded = decodes_ ? padded_rows(std::ssize(step.spans), rows_max_) : 0;
  staged_ = staging_.stage(step, padded, keeps_tokens);
  if (!rows.empty()) sampler_->stage(rows, size_of_table(staged_.sample_rows), vocab_used_);
}

StepGraphs::Launched StepGraphs::launch() {
  if (!(decodes_ ? options_.decode : options_.mixed)) return run_staged();
  Entry& entry = entry_of({.tokens = staged_.tables.tokens.dim(0),
                           .spans = staged_.tables.position.dim(0),
                           .samples = size_of_table(staged_.sample_rows),
                           .single_tokens = staged_.tables.single_tokens,
                           .pages = staged_.tables.pages.data});
  if (entry.recording == nullptr && entry.last_use != 0) record(entry);
  entry.last_use = ++uses_;
  if (entry.recording == nullptr) return run_staged();
  try {
    entry.recording->replay();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
    drop();  // nothing of it was begun
    return run_staged();
  }
  ++replayed_;
  return entry.launched;
}

/// The tokens drawn stand where the next decode step of the same sequences reads its own.
StepGraphs::Launched StepGraphs::run_staged() {
  const kernels::Tensor logits = decoder_.run(staged_.tables, staged_.sample_rows);
  if (logits.empty()) return {};
  const kernels::Tensor tokens = staged_.tables.tokens.rows(0, logits.dim(0));
  sampler_->draw(logits, vocab_used_, tokens);
  return {.logits = logits, .tokens = tokens};
}

/// The shape's entry; a new one takes the place of the one that was not used for longest.
StepGraphs::Entry& StepGraphs::entry_of(const Shape& shape) {
  const auto found = std::ranges::find(entries_, shape, &Entry::shape);
  if (found != entries_.end()) return *found;
  Entry entry{.shape = shape, .last_use = 0, .recording = nullptr, .launched = {}};
  if (entries_.size() < entries_max) return entries_.emplace_back(std::move(entry));
  kernels::wait(queue_);  // its work may still be under way
  Entry& oldest = *std::ranges::min_element(entries_, {}, &Entry::last_use);
  oldest = std::move(entry);
  return oldest;
}

void StepGraphs::drop() {
  kernels::wait(queue_);
  for (Entry& entry : entries_) entry.recording.reset();
}

/// At a shape's second step: the first loads what a recording may not load, and shapes that come
/// once are not worth one.
void StepGraphs::record(Entry& entry) {
  const auto attempt = [&] {
    entry.recording = kernels::record(queue_, [&] { entry.launched = run_staged(); });
  };
  try {
    try {
      attempt();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::memory) throw;
      drop();
      attempt();
    }
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
