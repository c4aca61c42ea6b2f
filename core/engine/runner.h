#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "core/base/ids.h"
#include "core/engine/sampling.h"

namespace hyb {

/// core decides with indices and counts and moves no bytes: copies are orders that ride in the next
/// step and are carried out before its spans, in the order given. So a page or slot may be handed
/// out again the moment it is released.
struct PageCopy {
  PageId from, to;
};
struct SlotCopy {
  SlotId from, to;
};
using Order = std::variant<PageCopy, SlotCopy>;

/// One row of a span whose logits are wanted.
struct SampleRow {
  std::int32_t token;  ///< index in the span: the logits after this token
  const SamplingParams* params;
  std::uint64_t draw;  ///< counts the tokens drawn so far in this sequence: the random counter
  std::span<const TokenId> history;  ///< prompt and generated tokens, for the penalties
  std::int32_t prompt_tokens;        ///< so many of history, from its front, are the prompt
};

/// One sequence's consecutive tokens in a step: a chunk of its prompt, one token, or drafts.
struct Span {
  std::span<const TokenId> tokens;
  std::int32_t position;          ///< of tokens[0]
  std::span<const PageId> pages;  ///< the sequence's page table, room for all these tokens
  SlotId read_slot;               ///< state before tokens[0]; no_slot: zeros
  SlotId write_slot;              ///< state after the last token; nothing else is written
  std::vector<SampleRow> samples;
};

/// One call of the model.
struct Step {
  std::vector<Order> orders;
  std::vector<Span> spans;
  bool keep_logits = false;
};

struct StepResult {
  std::vector<SampledToken> sampled;  ///< one per SampleRow, in the order of the spans
  std::vector<float> logits;          ///< [rows, vocab] when keep_logits
};

struct Capacity {
  std::int32_t pages;        ///< 0 for a model without attention
  std::int32_t slots;        ///< 0 for a model without recurrent layers
  std::int32_t page_tokens;  ///< positions per page
  std::int32_t step_tokens;  ///< most tokens in one step
  std::int32_t step_rows;    ///< most spans, and most sampled rows, in one step
  std::int32_t vocab;
};

/// What the engine needs from a model. The one interface that core states and a higher room
/// implements.
class Runner {
 public:
  virtual ~Runner() = default;
  virtual Capacity capacity() const = 0;

  /// Carries out the orders, then all spans. The result depends only on the tokens and the memory
  /// named, never on what else is in the step. What one span writes (its write slot, its positions
  /// in its pages) no other span of the step reads or writes. Views in the step live until run()
  /// returns. Throws Error when the step cannot be carried out; what it was to write is then never
  /// read again.
  virtual StepResult run(const Step& step) = 0;
};

}  // namespace hyb
