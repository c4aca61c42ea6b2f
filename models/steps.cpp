#include "models/steps.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "kernels/ops/draft_ring.h"

namespace hyb::models {

using kernels::StagedTables;

bool continues(const Span& before, const Span& span) {
  if (index(before.write_slot) >= 0) return span.read_slot == before.write_slot;
  return !span.tables.empty() && span.tables.data() == before.tables.data();
}

bool has_chain(const Step& step) {
  return std::ranges::adjacent_find(step.spans, continues) != step.spans.end();
}

bool uses_ring(const Span& span) {
  return span.ring != no_ring && (span.ring_entries > 0 || span.drafts > 0);
}

namespace {

std::int64_t tokens_of(const Step& step) {
  std::int64_t tokens = 0;
  for (const Span& span : step.spans) tokens += std::ssize(span.tokens);
  return tokens;
}

std::int64_t samples_of(const Step& step) {
  std::int64_t samples = 0;
  for (const Span& span : step.spans) samples += std::ssize(span.samples);
  return samples;
}

StepSizes sizes_of(const Step& step) {
  return {.tokens = tokens_of(step), .spans = std::ssize(step.spans), .samples = samples_of(step)};
}

std::int32_t to_i32(std::int64_t value) { return static_cast<std::int32_t>(value); }

bool has_state_before_drafts(const Span& span) {
  return span.drafts > 0 && span.write_slot != no_slot;
}

/// Writes numbers one after the other; what is not written reads as `rest`.
class Writer {
 public:
  Writer(std::span<std::int32_t> to, std::int32_t rest) : next_(to.data()) {
    std::fill(to.begin(), to.end(), rest);
  }
  void write(std::int32_t value) { *next_++ = value; }

 private:
  std::int32_t* next_;
};

}  // namespace

bool is_decode(const Step& step) {
  return !step.spans.empty() && !has_chain(step) &&
         std::ranges::all_of(step.spans, [](const Span& span) {
           return span.tokens.size() == 1 && span.samples.size() == 1 && !uses_ring(span);
         });
}

bool is_verify(const Step& step) {
  const auto is_single = [](const Span& span) {
    return std::ssize(span.tokens) == 1 + span.drafts && !span.samples.empty();
  };
  const auto is_plain = [](const Span& span) { return span.drafts == 0 && !uses_ring(span); };
  return !has_chain(step) && std::ranges::all_of(step.spans, is_single) &&
         !std::ranges::all_of(step.spans, is_plain);
}

namespace {

std::int64_t draft_numbers(const StepStaging::Limits& limits) {
  if (limits.draft_spans == 0) return 0;
  return drafts_max * (3 * limits.draft_spans + 1 + 3 * 16);
}

}  // namespace

std::size_t StepStaging::bytes(const Limits& limits) {
  // Every table is rounded up to 64 bytes: 7 of them, 6 of rings, 2 of hidden states, one of
  // blocks, one per group, and 3 per pass of drafts.
  const std::int64_t hidden = limits.hidden_group < 0 ? 0 : 2;
  const std::int64_t blocks = limits.has_blocks ? 1 : 0;
  const std::int64_t numbers = (2 + hidden) * limits.step_tokens + (4 + blocks) * limits.spans + 1 +
                               limits.rows + 3 * limits.ring_rows() + 6 * limits.ring_spans + 1 +
                               limits.groups * (limits.spans + 1 + limits.spans * limits.pages) +
                               16 * (14 + hidden + blocks + limits.groups) + draft_numbers(limits);
  return static_cast<std::size_t>(numbers) * sizeof(std::int32_t);
}

StepStaging::StepStaging(kernels::Queue& queue, const Limits& limits)
    : room_(kernels::make_staged_tables(queue, bytes(limits))),
      groups_(limits.groups),
      ring_tokens_(limits.ring_tokens),
      hidden_group_(limits.hidden_group),
      page_tokens_(limits.page_tokens),
      is_card_(queue.device() == kernels::Device::cuda) {}

std::int64_t StepStaging::Limits::ring_rows() const {
  return std::min(step_tokens, ring_spans * (1 + ring_tokens)) + ring_spans * ring_tokens;
}

StepStaging::Staged StepStaging::stage(const Step& step, const Padding* padding,
                                       bool keeps_tokens) {
  room_->clear();
  stage_tables(step, padding);
  room_->upload(keeps_tokens);
  return staged_;
}

StepStaging::Staged StepStaging::stage_blocks(const Step& step) {
  room_->clear();
  const kernels::Tensor ends = stage_block_ends(step);
  stage_tables(step, nullptr);
  room_->upload(false);
  Staged staged = staged_;
  staged.tables.block_end = ends;
  return staged;
}

kernels::Tensor StepStaging::stage_block_ends(const Step& step) {
  const StagedTables::Table ends = room_->take(std::ssize(step.spans));
  for (std::size_t i = step.spans.size(); i-- > 0;) {
    const bool is_last = i + 1 == step.spans.size() || !continues(step.spans[i], step.spans[i + 1]);
    ends.host[i] = is_last ? step.spans[i].position : ends.host[i + 1];
  }
  return ends.device;
}

void StepStaging::stage_tables(const Step& step, const Padding* padding) {
  const StepSizes sizes = padding != nullptr ? padding->sizes : sizes_of(step);
  arrange(step, padding != nullptr && padding->with_rings && ring_tokens_ > 0);
  stage_tokens(sizes.tokens);
  stage_spans(step, sizes.spans, sizes.samples);
  stage_rings(padding);
  stage_hidden();
  stage_pages(sizes.spans);
  std::int64_t positions = 0;
  for (const Span& span : step.spans) {
    positions = std::max(positions, std::int64_t{span.position} + std::ssize(span.tokens));
  }
  staged_.tables.positions = positions_class(positions);
  staged_.tables.single_tokens = sizes.tokens == sizes.spans &&
                                 tokens_of(step) == std::ssize(step.spans) && !has_chain(step) &&
                                 staged_.tables.ring.spans == 0;
}

std::int64_t StepStaging::positions_class(std::int64_t positions) {
  std::int64_t most = 1024;
  while (most < positions) most *= 4;
  return most;
}

void StepStaging::arrange(const Step& step, bool with_rings) {
  spans_.clear();
  for (const bool with_ring : {false, true}) {
    if (with_ring) first_with_ring_ = spans_.size();
    for (const Span& span : step.spans) {
      if ((with_rings || uses_ring(span)) == with_ring) spans_.push_back(&span);
    }
  }
}

void StepStaging::stage_tokens(std::int64_t tokens) {
  const StagedTables::Table ids = room_->take(tokens), positions = room_->take(tokens);
  Writer id(ids.host, 0), position(positions.host, 0);
  for (const Span* span : spans_) {
    std::int32_t at = span->position;
    for (const TokenId token : span->tokens) {
      id.write(index(token));
      position.write(at++);
    }
  }
  staged_.tables.tokens = ids.device;
  staged_.tables.position_of_row = positions.device;
}

void StepStaging::stage_spans(const Step& step, std::int64_t spans, std::int64_t samples) {
  const StagedTables::Table starts = room_->take(spans + 1), positions = room_->take(spans),
                            reads = room_->take(spans), writes = room_->take(spans),
                            rows = room_->take(samples);
  Writer start(starts.host, to_i32(tokens_of(step))), position(positions.host, 0),
      read(reads.host, -1), write(writes.host, -1), row(rows.host, 0);
  std::int32_t first = 0;
  first_tokens_.resize(step.spans.size());
  for (const Span* span : spans_) {
    start.write(first);
    position.write(span->position);
    read.write(index(span->read_slot));
    write.write(index(span->write_slot));
    first_tokens_[static_cast<std::size_t>(span - step.spans.data())] = first;
    first += to_i32(std::ssize(span->tokens));
  }
  for (std::size_t i = 0; i < step.spans.size(); ++i) {
    for (const SampleRow& sample : step.spans[i].samples) {
      row.write(first_tokens_[i] + sample.token);
    }
  }
  staged_.tables.span_begin = starts.device;
  staged_.tables.position = positions.device;
  staged_.tables.read_slot = reads.device;
  staged_.tables.write_slot = writes.device;
  staged_.sample_rows = rows.device;
}

std::int32_t StepStaging::ring_row(RingId ring, std::int32_t entry) const {
  return index(ring) * to_i32(ring_tokens_) + entry;
}

/// On a card all sizes follow from the numbers of spans and tokens. A branch leaves no state, so
/// all its rows are one piece.
void StepStaging::stage_rings(const Padding* padding) {
  RingTables& tables = staged_.tables.ring;
  tables = {};
  const std::span<const Span* const> spans = std::span(spans_).subspan(first_with_ring_);
  if (spans.empty()) return;
  std::int64_t entries = 0, pieces = 0;
  for (const Span* span : spans) {
    tables.tokens += std::ssize(span->tokens);
    entries += span->ring_entries;
    pieces += has_state_before_drafts(*span) ? 2 : 1;
  }
  tables.spans = std::ssize(spans);
  const std::int64_t rows = entries + tables.tokens;
  if (padding != nullptr && padding->with_rings) {
    tables.spans = padding->sizes.spans;
    tables.tokens = padding->sizes.tokens;
  }
  if (is_card_) pieces = 2 * tables.spans;
  const std::int64_t room = is_card_ ? tables.tokens + tables.spans * ring_tokens_ : rows;
  const StagedTables::Table from = room_->take(room), starts = room_->take(pieces + 1),
                            reads = room_->take(pieces), writes = room_->take(pieces),
                            answers = room_->take(tables.tokens), kept = room_->take(tables.tokens);
  Writer source(from.host, 0), start(starts.host, to_i32(rows)), read(reads.host, -1),
      write(writes.host, -1), answer(answers.host, 0), keep(kept.host, -1);
  std::int32_t row = 0, token = 0;
  for (const Span* span : spans) {
    start.write(row);
    read.write(index(span->read_slot));
    write.write(index(span->write_slot));
    for (std::int32_t i = 0; i < span->ring_entries; ++i, ++row) {
      source.write(-1 - ring_row(span->ring, i));
    }
    const std::int32_t certain = to_i32(std::ssize(span->tokens)) - span->drafts;
    if (has_state_before_drafts(*span)) {
      start.write(row + certain);
      read.write(index(span->write_slot));
      write.write(-1);
    }
    for (std::int32_t i = 0; i < certain + span->drafts; ++i) {
      source.write(token++);
      answer.write(row++);
      keep.write(i < certain ? -1 : ring_row(ring_of_drafts(*span), i - certain));
    }
  }
  tables.from = from.device;
  tables.span_begin = starts.device;
  tables.read_slot = reads.device;
  tables.write_slot = writes.device;
  tables.row_of_token = answers.device;
  tables.kept = kept.device;
}

/// Nothing comes before a sequence's first token, whose row is none.
void StepStaging::stage_hidden() {
  if (hidden_group_ < 0) return;
  const std::int64_t tokens = staged_.tables.tokens.dim(0);
  const StagedTables::Table before = room_->take(tokens), own = room_->take(tokens);
  Writer from(before.host, kernels::no_row), to(own.host, -1);
  std::int32_t token = 0;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = *spans_[i];
    const PageTable& pages = span.tables[static_cast<std::size_t>(hidden_group_)];
    const auto row_of = [&](std::int64_t position) {
      const PageId page = pages[static_cast<std::size_t>(position / page_tokens_)];
      return to_i32(index(page) * page_tokens_ + position % page_tokens_);
    };
    for (std::int64_t at = 0; at < std::ssize(span.tokens); ++at, ++token) {
      const bool is_first = at == 0 && (i == 0 || !continues(*spans_[i - 1], span));
      const std::int64_t position = span.position + at;
      to.write(row_of(position));
      from.write(!is_first       ? token - 1
                 : position == 0 ? kernels::no_row
                                 : -1 - row_of(position - 1));
    }
  }
  staged_.tables.hidden_before = before.device;
  staged_.tables.hidden = own.device;
}

StepStaging::StagedDrafts StepStaging::stage_drafts(const Step& step,
                                                    std::span<const std::int32_t> drafts,
                                                    std::int64_t spans) {
  const Padding padding = {.sizes = {.tokens = spans, .spans = spans, .samples = spans},
                           .with_rings = true};
  room_->clear();
  arrange(step, ring_tokens_ > 0);
  stage_tokens(spans);
  stage_spans(step, spans, spans);
  stage_rings(&padding);
  stage_hidden();
  std::int64_t positions = 0;
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    positions = std::max(positions, std::int64_t{step.spans[i].position} + drafts[i]);
  }
  staged_.tables.positions = positions_class(positions);
  StagedDrafts all = {.passes = {staged_.tables}, .drawn = {}, .sample_rows = staged_.sample_rows};
  while (std::ssize(all.drawn) < drafts.front()) stage_pass(step, drafts, all);
  stage_pages(spans);
  for (StepTables& tables : all.passes) {
    tables.pages = staged_.tables.pages;
    tables.page_begin = staged_.tables.page_begin;
  }
  room_->upload(false);
  return all;
}

/// Stages the rows that the last pass draws, and unless it is the last of all the pass that reads
/// what was drawn.
void StepStaging::stage_pass(const Step& step, std::span<const std::int32_t> drafts,
                             StagedDrafts& to) {
  const std::int64_t spans = to.sample_rows.dim(0);
  const StagedTables::Table drawn = room_->take(spans);
  std::ranges::fill(drawn.host, 0);
  to.drawn.push_back(drawn.device);
  const auto pass = to_i32(std::ssize(to.passes));
  if (pass == drafts.front()) return;
  const auto left =
      to_i32(std::ranges::count_if(drafts, [&](std::int32_t own) { return own > pass; }));
  const StagedTables::Table starts = room_->take(spans + 1), positions = room_->take(spans);
  Writer start(starts.host, left), position(positions.host, 0);
  for (std::int32_t i = 0; i < left; ++i) {
    start.write(i);
    position.write(step.spans[static_cast<std::size_t>(i)].position + pass);
  }
  StepTables& tables = to.passes.emplace_back(to.passes.front());
  tables.tokens = drawn.device;
  tables.span_begin = starts.device;
  tables.position = tables.position_of_row = positions.device;
}

StepTables StepStaging::stage(const AdvanceSlot& order) {
  room_->clear();
  const StagedTables::Table from = room_->take(order.entries), starts = room_->take(2),
                            read = room_->take(1), write = room_->take(1);
  const std::int32_t first = index(order.ring) * to_i32(ring_tokens_);
  for (std::int32_t i = 0; i < order.entries; ++i) {
    from.host[static_cast<std::size_t>(i)] = -1 - (first + i);
  }
  starts.host[0] = 0;
  starts.host[1] = order.entries;
  read.host[0] = index(order.from);
  write.host[0] = index(order.to);
  room_->upload(false);
  StepTables tables;
  tables.ring = {.spans = 1,
                 .tokens = 0,
                 .from = from.device,
                 .span_begin = starts.device,
                 .read_slot = read.device,
                 .write_slot = write.device};
  return tables;
}

/// The pages come last: their number changes from step to step, and their address must not.
void StepStaging::stage_pages(std::int64_t spans) {
  std::int64_t pages = 0;
  page_begin_.clear();
  for (std::int64_t group = 0; group < groups_; ++group) {
    const StagedTables::Table table = room_->take(spans + 1);
    page_begin_.push_back(table.device);
    Writer start(table.host, 0);
    for (const Span* span : spans_) {
      start.write(to_i32(pages));
      pages += std::ssize(span->tables[static_cast<std::size_t>(group)]);
    }
    std::fill(table.host.begin() + std::ssize(spans_), table.host.end(), to_i32(pages));
  }
  const StagedTables::Table all = room_->take(std::max<std::int64_t>(pages, 1));
  Writer page(all.host, 0);
  for (std::int64_t group = 0; group < groups_; ++group) {
    for (const Span* span : spans_) {
      for (const PageId id : span->tables[static_cast<std::size_t>(group)]) page.write(index(id));
    }
  }
  staged_.tables.pages = all.device;
  staged_.tables.page_begin = page_begin_;
}

namespace {

std::int64_t size_of_table(const kernels::Tensor& table) {
  return table.empty() ? 0 : table.dim(0);
}

}  // namespace

std::int64_t StepGraphs::padded_rows(std::int64_t rows, std::int64_t rows_max) {
  std::int64_t padded = 1;
  while (padded < rows && padded < 8) padded *= 2;
  if (padded < rows) padded = (rows + 7) / 8 * 8;
  return std::min(padded, rows_max);
}

StepSizes StepGraphs::padded_verify(const StepSizes& step, const StepSizes& limits) {
  const std::int64_t spans = padded_rows(step.spans, limits.spans);
  const std::int64_t tokens = (step.tokens + spans - 1) / spans * spans;
  return {.tokens = std::min(tokens, limits.tokens),
          .spans = spans,
          .samples = std::min(tokens, limits.samples)};
}

kernels::Tensor StepGraphs::run(const Step& step) {
  const StepStaging::Staged staged = staging_.stage(step);
  return decoder_.run(staged.tables, staged.sample_rows, step.draft_entries);
}

void StepGraphs::stage(const Step& step, std::span<const SampleRow> rows, bool keeps_tokens) {
  // Padded whether recorded or not: the number of rows decides the routes of products.
  const bool decodes = is_decode(step), verifies = is_verify(step);
  require(decodes || !keeps_tokens,
          "graphs: only a decode step's tokens may be on the card already");
  is_single_ = decodes || verifies;
  StepStaging::Padding padding = {.sizes = sizes_of(step), .with_rings = verifies};
  if (decodes) {
    const std::int64_t padded = padded_rows(padding.sizes.spans, limits_.rows);
    padding.sizes = {.tokens = padded, .spans = padded, .samples = padded};
  } else if (verifies) {
    padding.sizes = padded_verify(padding.sizes, limits_.step);
  }
  staged_ = staging_.stage(step, is_single_ ? &padding : nullptr, keeps_tokens);
  if (!rows.empty()) sampler_->stage(rows, size_of_table(staged_.sample_rows), limits_.vocab_used);
}

WorkResult StepGraphs::launch() {
  const GraphOptions& options = recordings_.options();
  if (!(is_single_ ? options.decode : options.mixed)) return run_staged();
  return recordings_.run({.tokens = staged_.tables.tokens.dim(0),
                          .spans = staged_.tables.position.dim(0),
                          .samples = size_of_table(staged_.sample_rows),
                          .positions = staged_.tables.positions,
                          .ring_spans = staged_.tables.ring.spans,
                          .ring_tokens = staged_.tables.ring.tokens,
                          .single_tokens = staged_.tables.single_tokens,
                          .pages = staged_.tables.pages.data},
                         [this] { return run_staged(); });
}

/// The sampled tokens are written where the next decode step of the same sequences reads its own.
WorkResult StepGraphs::run_staged() {
  const kernels::Tensor logits = decoder_.run(staged_.tables, staged_.sample_rows, true);
  if (logits.empty()) return {};
  const kernels::Tensor tokens = staged_.tables.tokens.rows(0, logits.dim(0));
  sampler_->draw(logits, limits_.vocab_used, tokens);
  return {.logits = logits, .tokens = tokens};
}

}  // namespace hyb::models
