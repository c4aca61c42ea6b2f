#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/engine/request.h"
#include "core/text/tokenizer.h"
#include "tests/sim/toy_model.h"

namespace hyb::sim {

/// What one choice of a request has to be answered: computed alone, by the naive model, with plain
/// string search.
struct ToyAnswer {
  std::vector<TokenId> tokens;
  std::string text;
  FinishReason reason = FinishReason::length;
};

ToyAnswer answer_of(const ToyModel& model, const Tokenizer* tokenizer, std::int32_t length_max,
                    const Request& request, std::int32_t choice);

/// The text of an answer that was cut off after `tokens`.
std::string text_of(const Tokenizer* tokenizer, const Request& request,
                    const std::vector<TokenId>& tokens);

}  // namespace hyb::sim
