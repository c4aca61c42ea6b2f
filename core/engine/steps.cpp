#include "core/engine/steps.h"

#include <chrono>
#include <cstdint>
#include <iterator>

#include "core/engine/speculation.h"

namespace hyb {

bool fill_step(Step& step, std::span<const Assignment> plan, Speculation* speculation) {
  std::size_t branches = 0;
  for (const Assignment& entry : plan) branches += static_cast<std::size_t>(entry.branches);
  step.spans.resize(plan.size() + branches);
  step.draft_entries = speculation == nullptr || speculation->wants_entries(plan);
  bool all_answer = true;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    Sequence& sequence = *plan[i].sequence;
    sequence.fill(step.spans[i], plan[i].tokens, plan[i].cuts);
    all_answer = all_answer && sequence.generated() > 0;
  }
  auto span = step.spans.begin() + static_cast<std::ptrdiff_t>(plan.size());
  for (const Assignment& entry : plan) {
    for (std::int32_t i = 0; i < entry.branches; ++i) entry.sequence->fill_branch(*span++, i);
  }
  return all_answer;
}

std::optional<PrefillStep> prefill_work(std::span<const Span> spans, Clock::duration elapsed) {
  PrefillStep work{.seconds = std::chrono::duration<double>(elapsed).count()};
  for (const Span& span : spans) {
    if (span.drafts > 0) return std::nullopt;
    const double begin = span.position, end = begin + static_cast<double>(span.tokens.size());
    work.tokens += std::ssize(span.tokens);
    work.positions += end * end - begin * begin;
    if (span.tokens.size() == 1) ++work.single;
  }
  return work;
}

std::size_t rows_of(const Step& step) {
  std::size_t rows = 0;
  for (const Span& span : step.spans) rows += span.samples.size();
  return rows;
}

}  // namespace hyb
