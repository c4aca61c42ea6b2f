#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/model_texts.h"
#include "app/verify/replay.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

struct PassageWishes {
  std::int32_t prompts = 6;  ///< of random tokens, or so many of a file's requests
  std::int32_t answer_tokens = 16;
  std::int32_t length_max = 320;  ///< of prompt and answer
  std::int32_t vocab;             ///< ids below it may occur
  std::uint64_t seed = 1;
};

/// Prompts of random tokens, of lengths from one token on, and of some lines of text where there is
/// a tokenizer. Every other one is sampled, with penalties; the rest is greedy.
std::vector<Passage> make_passages(const PassageWishes& wishes, const Tokenizer* tokenizer);

/// The prompts of requests as `hyb batch` takes them, `wishes.prompts` of the file's, evenly
/// spread; greedy unless a request says otherwise. wishes.length_max bounds prompt and answer.
/// Throws Error(usage) naming the line that is no request or is too long, and Error(model) for a
/// file that cannot be read.
std::vector<Passage> read_passages(const std::string& file, const PassageWishes& wishes,
                                   const ModelTexts& texts);

}  // namespace hyb::app
