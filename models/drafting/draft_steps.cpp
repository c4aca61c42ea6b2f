#include "models/drafting/draft_steps.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

#include "core/base/error.h"

namespace hyb::models {

namespace {

/// The token that has not run and masks after it, each in a span of its own; masks are sampled.
void add_block(const Span& span, std::span<const TokenId> mask, Step& blocks) {
  for (std::int32_t i = 0; i <= span.drafts; ++i) {
    Span& token = blocks.spans.emplace_back(Span{.tokens = i == 0 ? span.tokens : mask,
                                                 .position = span.position + i,
                                                 .tables = span.tables,
                                                 .read_slot = no_slot,
                                                 .write_slot = no_slot});
    if (i == 0) continue;
    token.samples = span.samples;
    token.samples.front() = token.samples.front().later(static_cast<std::uint64_t>(i - 1));
  }
}

/// The sequences of pass `pass`, of falling numbers of drafts.
std::size_t drafting(std::span<const std::int32_t> drafts, std::int32_t pass) {
  const auto is_over = [&](std::int32_t own) { return own <= pass; };
  return static_cast<std::size_t>(std::ranges::find_if(drafts, is_over) - drafts.begin());
}

}  // namespace

DraftSteps::DraftSteps(kernels::Queue& queue, const Plan& plan, Decoder& decoder,
                       StepStaging& staging, Recordings& recordings, RowSampler& sampler,
                       const Limits& limits)
    : decoder_(decoder),
      staging_(staging),
      recordings_(recordings),
      sampler_(sampler),
      limits_(limits),
      block_mask_(plan.draft->block_mask()) {
  if (block_mask_ || queue.device() == kernels::Device::cpu) return;
  for (std::int32_t pass = 0; pass < drafts_max; ++pass) {
    pass_samplers_.push_back(kernels::make_device_sampler(queue, limits.sequences));
  }
}

kernels::StagedBytes DraftSteps::bytes(kernels::Device device, const Plan& plan,
                                       std::int32_t sequences) {
  if (!plan.draft || !plan.draft->runs_in_passes()) return {};
  const kernels::StagedBytes each = kernels::device_sampler_bytes(device, sequences);
  return {.device = drafts_max * each.device, .pinned = drafts_max * each.pinned};
}

std::vector<std::vector<SampledToken>> DraftSteps::draft(const Step& step) {
  if (block_mask_) return draft_blocks(step);
  // Those with the most drafts come first, so that each pass has the first ones.
  std::vector<std::size_t> order(step.spans.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](std::size_t i) { return step.spans[i].drafts; });
  Step passes;
  std::vector<std::int32_t> counts;
  for (const std::size_t i : order) {
    passes.spans.push_back(step.spans[i]);
    counts.push_back(std::exchange(passes.spans.back().drafts, 0));
  }
  const Drafts drawn =
      pass_samplers_.empty() ? draft_by_passes(passes, counts) : draft_at_once(passes, counts);
  Drafts drafts(order.size());
  for (std::size_t pass = 0; pass < drawn.size(); ++pass) {
    for (std::size_t at = 0; at < drawn[pass].size(); ++at) {
      std::vector<SampledToken>& own = drafts[order[at]];
      if (drawn[pass][at].finite && own.size() == pass) own.push_back(drawn[pass][at]);
    }
  }
  return drafts;
}

/// All drafts of a sequence at once, of as many sequences as a step has rows for.
DraftSteps::Drafts DraftSteps::draft_blocks(const Step& step) {
  const std::array mask = {TokenId{*block_mask_}};
  Drafts drafts(step.spans.size());
  for (std::size_t first = 0, end = 0; first < step.spans.size(); first = end) {
    Step blocks;
    while (end < step.spans.size() &&
           std::ssize(blocks.spans) + 1 + step.spans[end].drafts <= limits_.block_rows) {
      add_block(step.spans[end++], mask, blocks);
    }
    require(end > first, "runner: a step has room for a block of drafts");
    const StepStaging::Staged staged = staging_.stage_blocks(blocks);
    const std::vector<SampledToken> drawn =
        sampler_.draw(blocks, decoder_.draft(staged.tables, staged.sample_rows, false));
    std::size_t row = 0;
    for (std::size_t i = first; i < end; ++i) {
      for (std::int32_t made = 0; made < step.spans[i].drafts; ++made, ++row) {
        if (drawn[row].finite && std::ssize(drafts[i]) == made) drafts[i].push_back(drawn[row]);
      }
    }
  }
  return drafts;
}

/// Returns what each pass drew. `drafts` fall.
DraftSteps::Drafts DraftSteps::draft_at_once(const Step& step,
                                             std::span<const std::int32_t> drafts) {
  const StepStaging::StagedDrafts staged = staging_.stage_drafts(
      step, drafts, StepGraphs::padded_rows(std::ssize(step.spans), limits_.sequences));
  std::vector<SampleRow> rows;
  for (std::int32_t pass = 0; pass < drafts.front(); ++pass) {
    rows.clear();
    for (const Span& span : std::span(step.spans).first(drafting(drafts, pass))) {
      rows.push_back(span.samples.front().later(static_cast<std::uint64_t>(pass)));
    }
    pass_samplers_[static_cast<std::size_t>(pass)]->stage(rows, staged.sample_rows.dim(0),
                                                          limits_.vocab_used);
  }
  launch(staged);
  Drafts drawn;
  for (std::size_t pass = 0; pass < staged.passes.size(); ++pass) {
    const std::span<const SampledToken> tokens = pass_samplers_[pass]->answers();
    drawn.emplace_back(tokens.begin(), tokens.end());
  }
  return drawn;
}

/// Starts all passes, and the copies of what they draw.
void DraftSteps::launch(const StepStaging::StagedDrafts& staged) {
  const auto run_passes = [&]() -> WorkResult {
    for (std::size_t pass = 0; pass < staged.passes.size(); ++pass) {
      const kernels::Tensor logits =
          decoder_.draft(staged.passes[pass], staged.sample_rows, pass > 0);
      pass_samplers_[pass]->draw(logits, limits_.vocab_used, staged.drawn[pass]);
    }
    return {};
  };
  const StepTables& tables = staged.passes.front();
  if (recordings_.options().decode) {
    recordings_.run({.tokens = tables.tokens.dim(0),
                     .spans = tables.position.dim(0),
                     .samples = staged.sample_rows.dim(0),
                     .positions = tables.positions,
                     .ring_spans = tables.ring.spans,
                     .ring_tokens = tables.ring.tokens,
                     .single_tokens = true,
                     .pages = tables.pages.data,
                     .draft_passes = std::ssize(staged.passes)},
                    run_passes);
  } else {
    run_passes();
  }
  for (std::size_t pass = 0; pass < staged.passes.size(); ++pass) {
    pass_samplers_[pass]->ask(staged.drawn[pass]);
  }
}

/// The same, each pass when the one before has drawn. What follows a token that is not finite means
/// nothing.
DraftSteps::Drafts DraftSteps::draft_by_passes(Step& step, std::span<const std::int32_t> drafts) {
  std::vector<TokenId> last;
  for (const Span& span : step.spans) last.push_back(span.tokens.front());
  Drafts drawn;
  for (std::int32_t pass = 0; pass < drafts.front(); ++pass) {
    step.spans.resize(drafting(drafts, pass));
    for (std::size_t at = 0; at < step.spans.size(); ++at) {
      step.spans[at].tokens = std::span(last).subspan(at, 1);
    }
    const StepStaging::Staged staged = staging_.stage(step);
    drawn.push_back(
        sampler_.draw(step, decoder_.draft(staged.tables, staged.sample_rows, pass > 0)));
    for (std::size_t at = 0; at < step.spans.size(); ++at) {
      if (drawn.back()[at].finite) last[at] = drawn.back()[at].token;
      Span& span = step.spans[at];
      ++span.position;
      span.samples.front() = span.samples.front().later(1);
      span.ring = no_ring;
      span.ring_entries = 0;
    }
  }
  return drawn;
}

}  // namespace hyb::models
