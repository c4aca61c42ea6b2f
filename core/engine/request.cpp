#include "core/engine/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "core/base/error.h"
#include "core/engine/stop_strings.h"

namespace hyb {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ErrorKind::usage, "request: " + text);
}

void check_tokens(std::string_view what, std::span<const TokenId> tokens, std::int32_t vocab) {
  for (const TokenId token : tokens) {
    if (index(token) >= 0 && index(token) < vocab) continue;
    refuse(fmt::format("{} holds token {}, but the model knows tokens 0 to {}", what, index(token),
                       vocab - 1));
  }
}

void check_message_ends(const Request& request) {
  std::int32_t last = 0;
  for (const std::int32_t end : request.message_ends) {
    if (end > last && end <= static_cast<std::int32_t>(request.prompt.size())) {
      last = end;
      continue;
    }
    refuse(fmt::format("message_ends ascend from 1 to the {} tokens of the prompt: {} after {}",
                       request.prompt.size(), end, last));
  }
  const std::int32_t needed_later = request.needed_later.value_or(0);
  if (needed_later < 0 || needed_later > static_cast<std::int32_t>(request.prompt.size())) {
    refuse(fmt::format("needed_later is from 0 to the {} tokens of the prompt: {}",
                       request.prompt.size(), needed_later));
  }
}

void check_masks(const Request& request, const RequestLimits& limits) {
  check_tokens("allowed_token_ids", request.allowed, limits.vocab);
  if (request.min_tokens < 0) {
    refuse(fmt::format("min_tokens is 0 or more: {}", request.min_tokens));
  }
  if (request.min_tokens > 0 && !request.stop.empty()) {
    refuse("min_tokens holds stop tokens back, not stop strings: leave one of the two out");
  }
  Constraint* const rule = request.rule.get();
  if (rule == nullptr) return;
  if (!request.allowed.empty()) refuse("a rule of the answer and allowed_token_ids: give one");
  const auto is_other = [&](TokenId token) { return !rule->vocabulary().is_end(token); };
  if (!request.stop.empty() || std::ranges::any_of(request.stop_tokens, is_other)) {
    refuse(
        "an answer with a rule (a schema, a grammar, ...) ends where the rule says: leave out "
        "stop strings and stop_token_ids");
  }
  const std::string& begun = request.start.begun;
  GrammarMatcher matcher(*rule);  // throws where the rule is too ambiguous from the start
  if (!begun.empty() && !matcher.accept_bytes(begun)) {
    refuse("the rule of the answer allows no text that begins with the message to be continued");
  }
}

}  // namespace

void check(const Request& request, const RequestLimits& limits) {
  if (request.prompt.empty()) refuse("the prompt has no tokens; give at least one");
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t prompt_max = limits.length_max - 1;
  if (prompt > prompt_max) {
    refuse(
        fmt::format("the prompt has {} tokens, {} more than fit: the limit is {} of prompt and "
                    "answer together; shorten or truncate the prompt, or raise the limit",
                    prompt, prompt - prompt_max, limits.length_max));
  }
  check_tokens("the prompt", request.prompt, limits.vocab);
  check_tokens("the list of stop tokens", request.stop_tokens, limits.vocab);
  if (request.max_tokens != -1 && request.max_tokens < 1) {
    refuse(
        fmt::format("max_tokens is 1 or more, or -1 for as many as fit: {}", request.max_tokens));
  }
  if (request.choices < 1 || request.choices > choices_max) {
    refuse(fmt::format("n, the number of choices, is 1 to {}: {}", choices_max, request.choices));
  }
  if (request.prefill_only && request.choices != 1) {
    refuse(fmt::format("prefill_only draws nothing, so it has 1 choice: {}", request.choices));
  }
  if (request.chunk_tokens < 0) {
    refuse(
        fmt::format("a chunk has 1 token or more, or 0 for the usual: {}", request.chunk_tokens));
  }
  check_message_ends(request);
  if (!request.stop.empty() && !limits.has_text) {
    refuse("stop strings need a tokenizer, and the model has none; use stop tokens");
  }
  static_cast<void>(StopStrings{request.stop});  // throws where one cannot be used
  check_masks(request, limits);
  check(request.sampling, limits.vocab);
}

std::string_view name_of(FinishReason reason) {
  constexpr std::array<std::string_view, 4> names = {"stop", "length", "cancelled", "error"};
  return names[static_cast<std::size_t>(reason)];
}

DraftCounts& DraftCounts::operator+=(const DraftCounts& more) {
  steps += more.steps;
  accepted += more.accepted;
  rejected += more.rejected;
  return *this;
}

double DraftCounts::acceptance_length() const {
  if (steps == 0) return 0;
  return 1 + static_cast<double>(accepted) / static_cast<double>(steps);
}

std::string_view name_of(SnapshotSource source) {
  constexpr std::array<std::string_view, 4> names = {"memory", "host", "disk", "session"};
  return names[static_cast<std::size_t>(source)];
}

std::string_view text_of(ReuseLimit limit) {
  switch (limit) {
    case ReuseLimit::off:
      return "prefix reuse is off";
    case ReuseLimit::nothing_known:
      return "nothing known";
    case ReuseLimit::new_text:
      return "the rest is new";
    case ReuseLimit::no_snapshot:
      return "no snapshot there";
    case ReuseLimit::last_token:
      return "the last token is always run";
    case ReuseLimit::memory_was_taken:
      return "memory was taken away";
  }
  return "unknown";
}

}  // namespace hyb
