#pragma once

#include <cstdint>
#include <vector>

#include "app/verify/replay.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

struct PassageWishes {
  std::int32_t random_prompts = 6;
  std::int32_t answer_tokens = 16;
  std::int32_t length_max = 320;  ///< of prompt and answer
  std::int32_t vocab;             ///< ids below it may occur
  std::uint64_t seed = 1;
};

/// Prompts of random tokens, of lengths from one token on, and of some lines of text where there is
/// a tokenizer. Every other one is sampled, with penalties; the rest is greedy.
std::vector<Passage> make_passages(const PassageWishes& wishes, const Tokenizer* tokenizer);

}  // namespace hyb::app
