#include "models/row_sampler.h"

namespace hyb::models {

RowSampler::RowSampler(kernels::Queue& queue, const Sizes& sizes)
    : queue_(queue),
      vocab_used_(sizes.vocab_used),
      workspace_(queue.device(),
                 kernels::sample_workspace_bytes(queue.device(), sizes.vocab, queue.threads())) {
  rows_.reserve(static_cast<std::size_t>(sizes.rows));
  if (queue.device() == kernels::Device::cuda) {
    on_card_ = kernels::make_device_sampler(queue, sizes.rows);
  }
}

std::span<const SampleRow> RowSampler::rows_of(const Step& step) {
  rows_.clear();
  for (const Span& span : step.spans) {
    rows_.insert(rows_.end(), span.samples.begin(), span.samples.end());
  }
  return rows_;
}

std::vector<SampledToken> RowSampler::draw(const Step& step, const kernels::Tensor& logits) {
  const std::span<const SampleRow> rows = rows_of(step);
  if (on_card_ != nullptr) {
    on_card_->stage(rows, logits.dim(0), vocab_used_);
    on_card_->draw(logits, vocab_used_, {});
    on_card_->ask({});
    const std::span<const SampledToken> drawn = on_card_->answers();
    return {drawn.begin(), drawn.end()};
  }
  std::vector<SampledToken> tokens(rows.size());
  const auto workspace = static_cast<std::int64_t>(workspace_.bytes());
  kernels::sample(queue_, {.logits = logits,
                           .vocab_used = vocab_used_,
                           .rows = rows,
                           .out = tokens,
                           .workspace = workspace_.tensor(0, DType::u8, {workspace})});
  return tokens;
}

}  // namespace hyb::models
