#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "app/verify/divergence.h"
#include "app/verify/sequence_reader.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

/// A text cut into windows as llama-perplexity cuts it: whole windows one after the other, each run
/// from its start, and scored from its middle on, where each token has half a window or more before
/// it. Where the tokenizer begins a text with a token of its own (BOS), so does every window, in
/// the place of its first token.
struct TextWindows {
  std::vector<TokenId> tokens;  ///< of all windows
  std::int32_t length = 0;      ///< tokens of a window, at least 4

  std::int32_t count() const {
    return static_cast<std::int32_t>(tokens.size() / static_cast<std::size_t>(length));
  }
  std::span<const TokenId> window(std::int32_t i) const {
    return std::span(tokens).subspan(static_cast<std::size_t>(i) * static_cast<std::size_t>(length),
                                     static_cast<std::size_t>(length));
  }
  /// The first token whose row of logits is scored, by the token that follows it.
  std::int32_t first_scored() const { return length / 2; }
};

/// Control tokens that the text spells are plain text. `windows_max`: 0: all. Throws Error(usage)
/// for a text of less than one window.
TextWindows windows_of(const Tokenizer& tokenizer, std::string_view text, std::int32_t length,
                       std::int32_t windows_max);

/// Negative log-probabilities of tokens.
struct Loss {
  std::int64_t tokens = 0;
  double sum = 0, sum_of_squares = 0;  ///< nats

  void add(double nats);
  double mean() const { return sum / static_cast<double>(tokens); }
  double perplexity() const;
  /// One standard error, as llama-perplexity has it: that of the mean loss times the perplexity.
  double perplexity_error() const;
};

/// Measures how well a model predicts a text, and how far it is from a reference.
struct Evaluation {
  std::int32_t windows = 0;
  Loss loss;
  std::optional<Loss> reference_loss;     ///< of the reference on the same tokens
  DivergenceSummary divergence;           ///< from the reference
  std::vector<double> window_divergence;  ///< means, in the order of the windows
};

/// A model as an evaluation reads with it.
struct Reader {
  Runner* runner;
  MemoryPool* pool;
};

struct EvaluationOptions {
  bool through_snapshot = false;  ///< each window goes on from an int8 snapshot at its middle
  std::function<void(std::int32_t windows_done)> progress = [](std::int32_t) {};
};

/// Runs all windows. `reference` is null where there is none; it never goes through a snapshot.
/// Throws as SequenceReader.
Evaluation evaluate(const TextWindows& windows, const Reader& model, const Reader* reference,
                    const EvaluationOptions& options);

}  // namespace hyb::app
