#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "app/bench/request_case.h"
#include "core/base/ids.h"
#include "core/engine/request.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

/// A request of a workload, and what of it is asked beforehand in a warm row.
struct WorkItem {
  Request request;
  std::int32_t primed_tokens = 0;
};

/// Random numbers of one repetition of one row: no other draws the same prompts.
struct DrawSeed {
  std::uint64_t seed = 0, row = 0, repetition = 0;

  /// `purpose` keeps apart what one repetition draws.
  std::mt19937_64 generator(std::uint64_t purpose) const;
};

/// What prompts are made of.
struct PromptMaterial {
  std::int32_t vocab;      ///< ids below it may be in prompts
  Request terms;           ///< what all requests have in common; the prompt is empty
  double range_ratio = 0;  ///< lengths are uniform within so much of what the case says
  const Tokenizer* tokenizer = nullptr;
  std::vector<TokenId> corpus;     ///< of Dataset::corpus
  std::string text;                ///< of Dataset::send_one
  std::vector<Request> from_file;  ///< of Dataset::file
};

/// The requests of a case. Throws Error(usage) where the material is missing: a text without a
/// tokenizer, a corpus shorter than a prompt.
std::vector<WorkItem> work_of(const RequestCase& test, const PromptMaterial& material,
                              const DrawSeed& seed);

/// The next turns of conversations: prompt, answer and `question_tokens` new random tokens. `work`
/// and `answers` are of equal size; a request without an answer has no next turn.
std::vector<WorkItem> next_turns(std::vector<WorkItem> work,
                                 std::span<const std::vector<TokenId>> answers,
                                 std::int32_t question_tokens, const PromptMaterial& material,
                                 const DrawSeed& seed);

}  // namespace hyb::app
