#include "core/engine/token_masks.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/engine/request.h"
#include "core/text/tokenizer.h"

namespace hyb {
namespace {

constexpr std::size_t forced_bytes_a_token = 8;  ///< of most at least

void set_bit(std::span<std::uint32_t> mask, TokenId token, bool is_set) {
  const auto at = static_cast<std::size_t>(index(token));
  const std::uint32_t bit = 1U << (at % 32);
  mask[at / 32] = is_set ? mask[at / 32] | bit : mask[at / 32] & ~bit;
}

}  // namespace

TokenMasks::TokenMasks(const Request& request, const Tokenizer* tokenizer, std::int32_t vocab)
    : request_(&request), tokenizer_(tokenizer) {
  if (!request.is_bound()) return;
  all_.assign(mask_words(vocab), request.allowed.empty() ? ~0U : 0U);
  for (const TokenId token : request.allowed) set_bit(all_, token, true);
  Constraint* const constraint = request.rule.get();
  if (constraint == nullptr) return;
  now_.matcher.emplace(*constraint);
  const std::string& begun = request.start.begun;
  require(begun.empty() || now_.matcher->accept_bytes(begun), "masks: as check() says");
  if (!request.start.may_think || tokenizer == nullptr) return;
  now_.scanner.emplace(request.start);
  if (!request.start.markers.has_headers) {
    thought_begin_ = tokenizer->find(request.start.markers.begin);
  }
}

/// Ends an answer, and not the step, if its rule throws.
template <typename Call>
bool TokenMasks::follows(State& state, const Call& call) {
  try {
    return state.error.empty() && call();
  } catch (const Error& error) {
    state.error = error.what();
    return false;
  }
}

bool TokenMasks::advance(State& state, TokenId token) const {
  return follows(state, [&] { return follow(state, token); });
}

bool TokenMasks::follow(State& state, TokenId token) const {
  if (!state.matcher) return true;
  if (!state.scanner) return state.matcher->accept(token);
  const bool is_free = !state.scanner->may_answer();
  if (!is_free && token != thought_begin_) {
    state.scanner.reset();
    return state.matcher->accept(token);
  }
  if (request_->rule.get()->vocabulary().is_end(token)) return false;
  for (const AnswerScanner::Piece& piece : state.scanner->push(tokenizer_->bytes_of(token))) {
    if (piece.part != AnswerPart::answer) continue;
    state.scanner.reset();  // the rest of the token is of the answer
    return state.matcher->accept_bytes(piece.text);
  }
  return true;
}

void TokenMasks::set(std::span<SampleRow> rows, std::span<const TokenId> drafts) {
  if (!request_->is_bound()) return;
  const std::size_t first = drafts.size() + 1 - rows.size();
  State state = now_;
  for (std::size_t i = 0; i <= drafts.size(); ++i) {
    if (i >= first) rows[i - first].mask = mask(state, rows[i - first].draw);
    if (i == drafts.size() || advance(state, drafts[i])) continue;
    // What follows a draft that is refused is never reached. One that can't be followed now may be
    // later, since places are kept: then the rows after it end the answer.
    if (state.error.empty()) break;
  }
  if (!state.error.empty()) error_ = state.error;
}

std::size_t TokenMasks::allowed(std::span<const TokenId> drafts) const {
  if (!now_.matcher) return drafts.size();
  State state = now_;
  const auto refused =
      std::ranges::find_if(drafts, [&](TokenId token) { return !advance(state, token); });
  return static_cast<std::size_t>(refused - drafts.begin());
}

std::vector<TokenId> TokenMasks::forced(std::int32_t most) const {
  if (!now_.matcher || now_.scanner || tokenizer_ == nullptr || most <= 0) return {};
  State state = now_;
  std::vector<TokenId> tokens;
  follows(state, [&] {
    const auto bytes_max = static_cast<std::size_t>(most) * forced_bytes_a_token;
    const std::string bytes = state.matcher->forced_bytes(bytes_max);
    // A single one, as a comma, is most often drawn together with what may follow it.
    if (bytes.size() > 1) tokens = tokenizer_->encode(bytes, {});
    return true;
  });
  tokens.resize(std::min(allowed(tokens), static_cast<std::size_t>(most)));
  return tokens;
}

/// After `drawn` tokens.
std::span<const std::uint32_t> TokenMasks::mask(State& state, std::uint64_t drawn) {
  if (used_ == masks_.size()) masks_.emplace_back();
  std::vector<std::uint32_t>& mask = masks_[used_++];
  const bool is_free = state.scanner && !state.scanner->may_answer();
  if (state.matcher && !is_free) {
    const bool is_known = follows(state, [&] {
      const std::span<const std::uint32_t> own = state.matcher->mask();
      mask.assign(own.begin(), own.end());
      return true;
    });
    if (!is_known) return mask.assign(all_.size(), 0), mask;
    if (state.scanner && thought_begin_) set_bit(mask, *thought_begin_, true);
  } else {
    mask = all_;
  }
  const bool can_end = state.matcher || !request_->ignore_eos;
  const bool is_too_short = can_end && drawn < static_cast<std::uint64_t>(request_->min_tokens);
  if (!is_too_short && !is_free) return mask;
  std::vector<std::uint32_t> longer = mask;
  for (const TokenId end : request_->stop_tokens) set_bit(longer, end, false);
  // Where a rule has come to its end nothing else is left.
  const bool goes_on = std::ranges::any_of(longer, [](std::uint32_t word) { return word != 0; });
  if (goes_on) mask = std::move(longer);
  return mask;
}

}  // namespace hyb
