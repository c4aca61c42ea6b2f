#pragma once

#include <span>
#include <string>

#include "core/base/ids.h"
#include "core/text/tokenizer.h"

namespace hyb::sim {

/// 16 tokens: letters, longer pieces, single bytes of "é" and "€", and one special token.
const Tokenizer& toy_tokenizer();

inline constexpr TokenId toy_end{10};

/// A text cut before the stop string that is complete first (of those the longest), by plain
/// search.
struct PlainText {
  std::string text;
  bool stopped = false;
};
PlainText cut_at_stop(std::string text, std::span<const std::string> stop);

}  // namespace hyb::sim
