#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/sampling.h"
#include "core/constraint/constraint.h"
#include "core/text/answer_scanner.h"

namespace hyb {

struct Request;
class Tokenizer;

/// Knows which tokens may be drawn next in one answer, by its request's rule, its allowed tokens
/// and its least length. Thoughts are free of the rule, but for tokens that end the answer.
class TokenMasks {
 public:
  /// The request outlives it, and so does the tokenizer, which may be null where no rule is given.
  TokenMasks(const Request& request, const Tokenizer* tokenizer, std::int32_t vocab);

  /// Drops the masks of earlier rows.
  void clear() {
    used_ = 0;
    error_.clear();
  }
  /// Sets the masks of rows after what was drawn and these drafts, the last row after all of them.
  /// They are valid until clear().
  void set(std::span<SampleRow> rows, std::span<const TokenId> drafts);
  /// The drafts before the first that would be refused.
  std::size_t allowed(std::span<const TokenId> drafts) const;
  /// The bytes that the rule leaves no choice about, as the tokenizer cuts them: at most this many
  /// tokens. The model may cut them in another way, so these are drafts.
  std::vector<TokenId> forced(std::int32_t most) const;

  /// Goes on by a drawn token. False: it came with the end of a thought, and the rule refuses it,
  /// or error() says why.
  bool accept(TokenId token) {
    const bool is_right = advance(now_, token);
    if (!is_right) error_ = now_.error;
    return is_right;
  }
  /// Why the rule could not be followed, as where it is too ambiguous: a row since clear() has an
  /// empty mask for that, or accept() has failed.
  const std::string& error() const { return error_; }
  /// The answer is whole.
  bool has_ended() const { return now_.matcher && now_.matcher->has_ended(); }

 private:
  struct State {
    std::optional<GrammarMatcher> matcher;  ///< empty: there is no rule
    std::optional<AnswerScanner> scanner;   ///< while a thought may come, or is open
    std::string error = {};                 ///< the rule could not be followed to here
  };

  bool advance(State& state, TokenId token) const;
  bool follow(State& state, TokenId token) const;
  template <typename Call>
  static bool follows(State& state, const Call& call);
  std::span<const std::uint32_t> mask(State& state, std::uint64_t drawn);

  const Request* request_;
  const Tokenizer* tokenizer_;
  std::vector<std::uint32_t> all_;  ///< the mask where no rule says more
  std::optional<TokenId> thought_begin_;
  State now_;
  std::string error_;
  std::vector<std::vector<std::uint32_t>> masks_;
  std::size_t used_ = 0;  ///< of the masks
};

}  // namespace hyb
