#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/base/sampling.h"
#include "core/engine/request.h"
#include "core/text/tokenizer.h"

namespace hyb::sim {

/// A hybrid model whose every next token depends on every earlier token, on their order and on
/// where they are kept: an attention half (a key per position) and a recurrent half (one number),
/// each feeding the other. Either half may be missing.
struct ToyModel {
  bool attention = true;
  bool recurrence = true;
  std::int32_t vocab = 16;
  std::int32_t nan_every = 0;  ///< about one draw in this many is not finite; 0: none
};

std::uint64_t mix(std::uint64_t a, std::uint64_t b);

/// What the position attends to, from the keys before it: key(i) for i < position.
template <typename Key>
std::uint64_t attend(std::int32_t position, Key&& key) {
  if (position == 0) return 1;
  const std::uint64_t near = mix(key(position - 1), key(position / 2));
  return mix(near, key((position * 31 + 7) % position));
}

std::uint64_t advance(std::uint64_t recurrent, TokenId token, std::uint64_t attended);
std::uint64_t make_key(TokenId token, std::uint64_t attended, std::uint64_t recurrent);

/// The "logits" at a position: all keys up to it and the recurrent half after it.
template <typename Key>
std::uint64_t output_of(const ToyModel& model, std::int32_t positions, std::uint64_t recurrent,
                        Key&& key) {
  std::uint64_t output = mix(recurrent, static_cast<std::uint64_t>(positions));
  if (!model.attention) return output;
  for (std::int32_t i = 0; i < positions; ++i) output = mix(output, key(i));
  return output;
}

/// A token that the mask refuses becomes the next one that it allows; where there is none, the draw
/// is not finite.
SampledToken draw(const ToyModel& model, std::uint64_t output, const SamplingParams& params,
                  std::uint64_t count, std::span<const std::uint32_t> mask = {});

/// The meaning of the model: one sequence, plain vectors, no pages, slots, chunks or steps.
class NaiveToy {
 public:
  explicit NaiveToy(const ToyModel& model) : model_(model) {}
  void push(TokenId token);
  std::uint64_t output() const;

 private:
  ToyModel model_;
  std::vector<std::uint64_t> keys_;
  std::uint64_t recurrent_ = 0;
};

/// 16 tokens: letters, longer pieces, single bytes of "é" and "€", and one special token.
const Tokenizer& toy_tokenizer();

inline constexpr TokenId toy_end{10};

/// Rules over its vocabulary, one such cache per thread.
ConstraintCache& toy_rules();

/// The mask of what may follow an answer's tokens, by the rule's bytes alone, token by token.
std::vector<std::uint32_t> naive_mask(const Request& request, std::span<const TokenId> answer);

/// A text cut before the stop string that is complete first (of those the longest), by plain
/// search.
struct PlainText {
  std::string text;
  bool stopped = false;
};
PlainText cut_at_stop(std::string text, std::span<const std::string> stop);

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
