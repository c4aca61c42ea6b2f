#include "app/chat/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace hyb::app {
namespace {

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// Why no more was reused, and what the reused part cost.
std::string why(const Usage& usage) {
  std::string text(text_of(usage.reuse_limit));
  if (usage.reused_from == SnapshotSource::disk) text += ", from disk";
  if (usage.reused_from == SnapshotSource::session) text += ", from the session file";
  if (usage.resumed_packed) text += ", from an int8 snapshot";
  return text;
}

/// What was known of a prompt and could not be used.
std::int32_t lost_tokens(const Usage& usage) {
  return std::max(usage.matched_tokens - usage.reused_tokens, 0);
}

}  // namespace

double tokens_per_second(const Usage& usage) {
  const double time = seconds(usage.decode);
  return usage.completion_tokens < 2 || time <= 0 ? 0.0 : (usage.completion_tokens - 1) / time;
}

std::string status_line(const Answer& answer, bool utf8) {
  const Usage& usage = answer.completion.usage;
  const std::string_view dot = utf8 ? " \u00B7 " : ", ";
  std::string line = answer.was_stopped ? fmt::format("[stopped{}", dot) : "[";
  line +=
      fmt::format("reused {}{}prefilled {}{}{}{}", usage.reused_tokens, dot, usage.prefilled_tokens,
                  usage.reuse_limit == ReuseLimit::off ? "" : fmt::format(" ({})", why(usage)), dot,
                  counted(usage.completion_tokens, "token"));
  if (const double rate = tokens_per_second(usage); rate > 0) {
    line += fmt::format("{}{:.1f} tok/s", dot, rate);
  }
  return line += ']';
}

void ChatTotals::add(const Usage& usage) {
  ++answers;
  reused_tokens += usage.reused_tokens;
  prefilled_tokens += usage.prefilled_tokens;
  completion_tokens += usage.completion_tokens;
}

std::string stats_text(const Answer& last, const ChatTotals& totals) {
  const Completion& completion = last.completion;
  const Usage& usage = completion.usage;
  std::string text = fmt::format(
      "last answer\n"
      "  prompt               {} ({} reused, {} prefilled)\n"
      "  known before         {} ({} not reused), {}\n"
      "  generated            {}, ended by {}\n"
      "  time to first token  {:.3f} s\n",
      counted(usage.prompt_tokens, "token"), usage.reused_tokens, usage.prefilled_tokens,
      counted(usage.matched_tokens, "token"), lost_tokens(usage), why(usage),
      counted(usage.completion_tokens, "token"), name_of(completion.reason),
      seconds(usage.queued + usage.prefill));
  if (const double rate = tokens_per_second(usage); rate > 0) {
    text += fmt::format("  generation           {:.1f} tok/s\n", rate);
  }
  if (usage.recomputed_tokens > 0) {
    text += fmt::format("  recomputed           {}\n", counted(usage.recomputed_tokens, "token"));
  }
  text += fmt::format("this chat\n  {}: {} reused, {} prefilled, {} generated\n",
                      counted(totals.answers, "answer"), totals.reused_tokens,
                      totals.prefilled_tokens, totals.completion_tokens);
  if (totals.ahead_tokens > 0) {
    text += fmt::format("  {} run while you typed\n", counted(totals.ahead_tokens, "token"));
  }
  return text;
}

}  // namespace hyb::app
