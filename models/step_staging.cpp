#include "models/step_staging.h"

#include <algorithm>

#include "models/step_chains.h"

namespace hyb::models {

using kernels::StagedTables;

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

std::int32_t to_i32(std::int64_t value) { return static_cast<std::int32_t>(value); }

/// Numbers behind each other; what is not written reads as `rest`.
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
           return span.tokens.size() == 1 && span.samples.size() == 1;
         });
}

std::size_t StepStaging::bytes(const Limits& limits) {
  // Every take is rounded up to 64 bytes: 7 of them, and one per group.
  const std::int64_t numbers = 2 * limits.tokens + 4 * limits.spans + 1 + limits.rows +
                               limits.groups * (limits.spans + 1 + limits.spans * limits.pages) +
                               16 * (8 + limits.groups);
  return static_cast<std::size_t>(numbers) * sizeof(std::int32_t);
}

StepStaging::StepStaging(kernels::Queue& queue, const Limits& limits)
    : room_(kernels::make_staged_tables(queue, bytes(limits))), groups_(limits.groups) {}

StepStaging::Staged StepStaging::stage(const Step& step, std::int64_t rows, bool keeps_tokens) {
  room_->clear();
  const std::int64_t spans = rows == 0 ? std::ssize(step.spans) : rows;
  stage_tokens(step, rows == 0 ? tokens_of(step) : rows);
  stage_spans(step, spans, rows == 0 ? samples_of(step) : rows);
  stage_pages(step, spans);
  staged_.tables.single_tokens = staged_.tables.tokens.dim(0) == spans && !has_chain(step);
  room_->upload(keeps_tokens);
  return staged_;
}

void StepStaging::stage_tokens(const Step& step, std::int64_t tokens) {
  const StagedTables::Table ids = room_->take(tokens), positions = room_->take(tokens);
  Writer id(ids.host, 0), position(positions.host, 0);
  for (const Span& span : step.spans) {
    std::int32_t at = span.position;
    for (const TokenId token : span.tokens) {
      id.write(index(token));
      position.write(at++);
    }
  }
  staged_.tables.tokens = ids.device;
  staged_.tables.position_of_row = positions.device;
}

void StepStaging::stage_spans(const Step& step, std::int64_t spans, std::int64_t samples) {
  const StagedTables::Table begins = room_->take(spans + 1), positions = room_->take(spans),
                            reads = room_->take(spans), writes = room_->take(spans),
                            rows = room_->take(samples);
  Writer begin(begins.host, to_i32(tokens_of(step))), position(positions.host, 0),
      read(reads.host, -1), write(writes.host, -1), row(rows.host, 0);
  std::int32_t first = 0;
  for (const Span& span : step.spans) {
    begin.write(first);
    position.write(span.position);
    read.write(index(span.read_slot));
    write.write(index(span.write_slot));
    for (const hyb::SampleRow& sample : span.samples) row.write(first + sample.token);
    first += to_i32(std::ssize(span.tokens));
  }
  staged_.tables.span_begin = begins.device;
  staged_.tables.position = positions.device;
  staged_.tables.read_slot = reads.device;
  staged_.tables.write_slot = writes.device;
  staged_.sample_rows = rows.device;
}

/// The pages stand last: their number changes from step to step, and their address must not.
void StepStaging::stage_pages(const Step& step, std::int64_t spans) {
  std::int64_t pages = 0;
  page_begin_.clear();
  for (std::int64_t group = 0; group < groups_; ++group) {
    const StagedTables::Table table = room_->take(spans + 1);
    page_begin_.push_back(table.device);
    Writer begin(table.host, 0);
    for (const Span& span : step.spans) {
      begin.write(to_i32(pages));
      pages += std::ssize(span.tables[static_cast<std::size_t>(group)]);
    }
    std::fill(table.host.begin() + std::ssize(step.spans), table.host.end(), to_i32(pages));
  }
  const StagedTables::Table all = room_->take(std::max<std::int64_t>(pages, 1));
  Writer page(all.host, 0);
  for (std::int64_t group = 0; group < groups_; ++group) {
    for (const Span& span : step.spans) {
      for (const PageId id : span.tables[static_cast<std::size_t>(group)]) page.write(index(id));
    }
  }
  staged_.tables.pages = all.device;
  staged_.tables.page_begin = page_begin_;
}

}  // namespace hyb::models
