#include "app/eval/text_evaluation.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

/// Returns the token that the tokenizer puts before a text by itself.
std::optional<TokenId> token_before(const Tokenizer& tokenizer, std::span<const TokenId> tokens) {
  const std::vector<TokenId> alone = tokenizer.encode("", {.add_special_tokens = true});
  if (alone.empty() || tokens.empty() || alone.front() != tokens.front()) return std::nullopt;
  return alone.front();
}

}  // namespace

TextWindows windows_of(const Tokenizer& tokenizer, std::string_view text, std::int32_t length,
                       std::int32_t windows_max) {
  TextWindows windows = {.tokens = tokenizer.encode(text, {.add_special_tokens = true}),
                         .length = length};
  std::int32_t count = windows.count();
  if (count == 0) {
    throw Error(ErrorKind::usage,
                fmt::format("the text has {}, a window {}: give a longer text or a smaller "
                            "--context",
                            counted(std::ssize(windows.tokens), "token"), length));
  }
  if (windows_max > 0) count = std::min(count, windows_max);
  const std::optional<TokenId> before = token_before(tokenizer, windows.tokens);
  windows.tokens.resize(static_cast<std::size_t>(count) * static_cast<std::size_t>(length));
  for (std::size_t begin = 0; before && begin < windows.tokens.size();
       begin += static_cast<std::size_t>(length)) {
    windows.tokens[begin] = *before;
  }
  return windows;
}

void Loss::add(double nats) {
  ++tokens;
  sum += nats;
  sum_of_squares += nats * nats;
}

double Loss::perplexity() const { return std::exp(mean()); }

double Loss::perplexity_error() const {
  if (tokens < 2) return 0;
  const double variance = sum_of_squares / static_cast<double>(tokens) - mean() * mean();
  return std::sqrt(std::max(0.0, variance) / static_cast<double>(tokens - 1)) * perplexity();
}

Evaluation evaluate(const TextWindows& windows, const Reader& model, const Reader* reference,
                    const EvaluationOptions& options) {
  Evaluation result;
  result.windows = windows.count();
  Divergences divergences;
  if (reference != nullptr) result.reference_loss.emplace();
  for (std::int32_t i = 0; i < windows.count(); ++i) {
    const std::span<const TokenId> tokens = windows.window(i);
    SequenceReader reader(*model.runner, *model.pool, tokens);
    std::optional<SequenceReader> other;
    reader.skip_to(windows.first_scored());
    if (options.through_snapshot) reader.go_through_snapshot();
    if (reference != nullptr) {
      other.emplace(*reference->runner, *reference->pool, tokens);
      other->skip_to(windows.first_scored());
    }
    const std::int32_t rows_max =
        other ? std::min(reader.rows_max(), other->rows_max()) : reader.rows_max();
    const std::size_t first_row = divergences.values().size();
    while (reader.position() < windows.length - 1) {
      const auto next = static_cast<std::size_t>(reader.position() + 1);
      const std::int32_t count = std::min(rows_max, windows.length - 1 - reader.position());
      const std::vector<LogitsRow> found = reader.read(count);
      for (std::size_t row = 0; row < found.size(); ++row) {
        result.loss.add(-found[row].logprob(tokens[next + row]));
      }
      if (!other) continue;
      const std::vector<LogitsRow> expected = other->read(count);
      for (std::size_t row = 0; row < found.size(); ++row) {
        result.reference_loss->add(-expected[row].logprob(tokens[next + row]));
        divergences.add(expected[row], found[row]);
      }
    }
    if (other) {
      const auto rows = std::span(divergences.values()).subspan(first_row);
      double sum = 0;
      for (const double value : rows) sum += value;
      result.window_divergence.push_back(sum / static_cast<double>(rows.size()));
    }
    options.progress(i + 1);
  }
  result.divergence = divergences.summary();
  return result;
}

}  // namespace hyb::app
