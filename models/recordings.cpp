#include "models/recordings.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/log.h"
#include "kernels/transfer.h"

namespace hyb::models {
namespace {

/// Shapes that are kept: all decode sizes up to 256 rows at two classes of positions, and as many
/// of drafts and prompts.
constexpr std::size_t entries_max = 128;

}  // namespace

void Recordings::set_options(const GraphOptions& options) {
  if (options == options_) return;
  kernels::wait(queue_);  // a recording may still be running
  entries_.clear();
  options_ = options;
}

WorkResult Recordings::run(const WorkShape& shape, const std::function<WorkResult()>& work) {
  Entry& entry = entry_of(shape);
  if (entry.recording == nullptr && entry.last_use != 0) record(entry, work);
  entry.last_use = ++uses_;
  if (entry.recording == nullptr) return work();
  try {
    entry.recording->replay();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
    drop();  // none of it was started
    return work();
  }
  ++replayed_;
  return entry.result;
}

/// The shape's entry; a new one replaces the least recently used.
Recordings::Entry& Recordings::entry_of(const WorkShape& shape) {
  const auto found = std::ranges::find(entries_, shape, &Entry::shape);
  if (found != entries_.end()) return *found;
  Entry entry{.shape = shape, .last_use = 0, .recording = nullptr, .result = {}};
  if (entries_.size() < entries_max) return entries_.emplace_back(std::move(entry));
  kernels::wait(queue_);  // its work may still be running
  Entry& oldest = *std::ranges::min_element(entries_, {}, &Entry::last_use);
  oldest = std::move(entry);
  return oldest;
}

void Recordings::drop() {
  kernels::wait(queue_);
  for (Entry& entry : entries_) entry.recording.reset();
}

/// Called at a shape's second work: the first loads what a recording may not load, and shapes that
/// never recur are not worth one.
void Recordings::record(Entry& entry, const std::function<WorkResult()>& work) {
  const auto attempt = [&] {
    entry.recording = kernels::record(queue_, [&] { entry.result = work(); });
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
    const WorkShape& shape = entry.shape;
    const std::string drafts =
        shape.draft_passes > 0 ? fmt::format(" {} drafts of each,", shape.draft_passes) : "";
    log::debug(fmt::format("graph {}: {} tokens, {} sequences,{} {} sampled, up to {} positions",
                           recorded_, shape.tokens, shape.spans, drafts, shape.samples,
                           shape.positions));
  } catch (const Error& error) {
    log::warning(fmt::format("a step cannot be recorded as a CUDA graph, all run eagerly now: {}",
                             error.what()));
    options_ = {.decode = false, .mixed = false};
  }
}

}  // namespace hyb::models
