#include "models/drafting/graphs.h"

namespace hyb::models {

DraftGraphs::DraftGraphs(kernels::Queue& queue, Decoder& decoder, StepStaging& staging,
                         Recordings& recordings, std::int64_t rows, std::int32_t vocab_used)
    : decoder_(decoder),
      staging_(staging),
      recordings_(recordings),
      rows_(rows),
      vocab_used_(vocab_used) {
  for (std::int32_t pass = 0; pass < drafts_max; ++pass) {
    samplers_.push_back(kernels::make_device_sampler(queue, rows));
  }
}

kernels::StagedBytes DraftGraphs::bytes(kernels::Device device, std::int64_t rows) {
  const kernels::StagedBytes each = kernels::device_sampler_bytes(device, rows);
  return {.device = drafts_max * each.device, .pinned = drafts_max * each.pinned};
}

void DraftGraphs::stage(const Step& step, std::span<const std::int32_t> drafts) {
  const std::int64_t spans = StepGraphs::padded_rows(std::ssize(step.spans), rows_);
  staged_ = staging_.stage_drafts(step, drafts, spans);
}

void DraftGraphs::stage_draws(std::int64_t pass, std::span<const SampleRow> rows) {
  samplers_[static_cast<std::size_t>(pass)]->stage(rows, staged_.sample_rows.dim(0), vocab_used_);
}

void DraftGraphs::launch() {
  const StepTables& tables = staged_.passes.front();
  if (recordings_.options().decode) {
    recordings_.run({.tokens = tables.tokens.dim(0),
                     .spans = tables.position.dim(0),
                     .samples = staged_.sample_rows.dim(0),
                     .positions = tables.positions,
                     .ring_spans = tables.ring.spans,
                     .ring_tokens = tables.ring.tokens,
                     .single_tokens = true,
                     .pages = tables.pages.data,
                     .draft_passes = std::ssize(staged_.passes)},
                    [this] { return run_staged(); });
  } else {
    run_staged();
  }
  for (std::size_t pass = 0; pass < staged_.passes.size(); ++pass) {
    samplers_[pass]->ask(staged_.drawn[pass]);
  }
}

/// The passes leave what they draw where the next one reads it; the answers are the samplers'.
WorkResult DraftGraphs::run_staged() {
  for (std::size_t pass = 0; pass < staged_.passes.size(); ++pass) {
    const kernels::Tensor logits =
        decoder_.draft(staged_.passes[pass], staged_.sample_rows, pass > 0);
    samplers_[pass]->draw(logits, vocab_used_, staged_.drawn[pass]);
  }
  return {};
}

std::span<const SampledToken> DraftGraphs::drawn(std::int64_t pass) {
  return samplers_[static_cast<std::size_t>(pass)]->answers();
}

}  // namespace hyb::models
