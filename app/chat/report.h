#pragma once

#include <string>

#include "app/chat/answer.h"

namespace hyb::app {

/// One line about an answer: "[reused 90 · prefilled 37 (the rest is new) · 12 tokens · 45.1
/// tok/s]", without a line break; in plain ASCII unless `utf8`. The reason why no more was reused
/// is left out where nothing is remembered at all.
std::string status_line(const Answer& answer, bool utf8);

/// Generated tokens per second, without the first; 0 when there is no second.
double tokens_per_second(const Usage& usage);

/// Sums over a chat.
struct ChatTotals {
  std::int32_t answers = 0;
  std::int64_t reused_tokens = 0, prefilled_tokens = 0, completion_tokens = 0;
  std::int64_t ahead_tokens = 0;  ///< run while a person typed

  void add(const Usage& usage);
};

/// What /stats shows of the last answer and of all.
std::string stats_text(const Answer& last, const ChatTotals& totals);

}  // namespace hyb::app
