#include "core/engine/ngram_drafter.h"

#include <algorithm>
#include <bit>

#include "core/base/error.h"

namespace hyb {
namespace {

/// Between texts; no token of a vocabulary.
constexpr TokenId text_break{-1};

constexpr std::size_t buckets_min = 1024;

}  // namespace

void NgramIndex::append(std::span<const TokenId> tokens) {
  resize(tokens_.size() + tokens.size());
  for (const TokenId token : tokens) push(token);
}

void NgramIndex::append_break() { append(std::span(&text_break, 1)); }

/// A place is linked when the token that follows it is known.
void NgramIndex::push(TokenId token) {
  link(tokens_.size());
  tokens_.push_back(token);
}

void NgramIndex::link(std::size_t place) {
  std::int32_t before = -1;
  if (place >= static_cast<std::size_t>(match_min)) {
    std::int32_t& latest = latest_[bucket(place, match_min)];
    before = std::exchange(latest, static_cast<std::int32_t>(place));
    pairs_[bucket(place - 1, match_min - 1)] = true;
  }
  previous_.push_back(before);
}

/// Makes room for a text of this length, with two buckets or more for each.
void NgramIndex::resize(std::size_t tokens) {
  if (2 * tokens <= latest_.size()) return;
  const std::size_t buckets = std::bit_ceil(std::max(4 * tokens, buckets_min));
  latest_.assign(buckets, -1);
  pairs_.assign(buckets, false);
  previous_.clear();
  for (std::size_t place = 0; place < tokens_.size(); ++place) link(place);
}

/// Returns the bucket of the `count` tokens before `end`.
std::size_t NgramIndex::bucket(std::size_t end, std::int32_t count) const {
  std::uint64_t hash = 0;
  for (std::size_t at = end - static_cast<std::size_t>(count); at < end; ++at) {
    hash = (hash ^ static_cast<std::uint32_t>(index(tokens_[at]))) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29;
  }
  return static_cast<std::size_t>(hash) & (latest_.size() - 1);
}

/// Returns how many tokens before the place are those at the end of the text.
std::int32_t NgramIndex::matching(std::size_t place) const {
  std::int32_t equal = 0;
  const std::size_t end = tokens_.size();
  while (equal < match_max && static_cast<std::size_t>(equal) < place) {
    const auto back = static_cast<std::size_t>(equal) + 1;
    if (tokens_[place - back] != tokens_[end - back] || tokens_[end - back] == text_break) break;
    ++equal;
  }
  return equal;
}

void NgramIndex::draft(std::int32_t most, std::vector<TokenId>& drafts) const {
  drafts.clear();
  if (tokens_.size() < static_cast<std::size_t>(match_min)) return;
  std::int32_t longest = match_min - 1, best = -1, looks = looks_max;
  for (std::int32_t place = latest_[bucket(tokens_.size(), match_min)];
       place >= 0 && looks-- > 0 && longest < match_max;
       place = previous_[static_cast<std::size_t>(place)]) {
    const std::int32_t equal = matching(static_cast<std::size_t>(place));
    if (equal <= longest) continue;
    longest = equal;
    best = place;
  }
  if (best >= 0) read(best, most, drafts);
}

void NgramIndex::draft(std::int32_t most, std::int32_t count, std::vector<TokenId>& drafts,
                       std::vector<std::vector<TokenId>>& others) const {
  draft(most, drafts);
  others.clear();
  if (drafts.empty() || count <= 0) return;
  struct Place {
    std::int32_t at, equal;
  };
  std::vector<Place> places;
  for (std::int32_t at = latest_[bucket(tokens_.size(), match_min)];
       at >= 0 && std::ssize(places) < looks_max; at = previous_[static_cast<std::size_t>(at)]) {
    places.push_back({.at = at, .equal = matching(static_cast<std::size_t>(at))});
  }
  std::ranges::stable_sort(places, std::ranges::greater(), &Place::equal);
  std::vector<TokenId> other;
  const auto has_begin = [&](const std::vector<TokenId>& known) {
    const auto shorter = static_cast<std::int32_t>(std::min(known.size(), other.size()));
    return common_prefix(known, other) == shorter;
  };
  for (const Place& place : places) {
    if (std::ssize(others) == count || place.equal < match_min) return;
    other.clear();
    read(place.at, most, other);
    if (!has_begin(drafts) && std::ranges::none_of(others, has_begin)) others.push_back(other);
  }
}

/// A text that repeats itself goes on with its own drafts.
void NgramIndex::read(std::int32_t place, std::int32_t most, std::vector<TokenId>& drafts) const {
  for (auto at = static_cast<std::size_t>(place); std::ssize(drafts) < most; ++at) {
    const TokenId token = at < tokens_.size() ? tokens_[at] : drafts[at - tokens_.size()];
    if (token == text_break) return;
    drafts.push_back(token);
  }
}

bool NgramIndex::may_draft_after_next() const {
  return tokens_.size() >= static_cast<std::size_t>(match_min) &&
         pairs_[bucket(tokens_.size(), match_min - 1)];
}

NgramIndex& NgramDrafter::index_of(const ArrivalOrder& sequence, std::span<const TokenId> tokens) {
  const auto [found, is_new] = texts_.try_emplace(sequence);
  Text& text = found->second;
  if (is_new) {
    const std::vector<TokenId> others = remembered_(tokens);
    text.index.append(others);
    if (!others.empty()) text.index.append_break();
  }
  require(text.known <= tokens.size(), "drafter: a sequence loses no tokens");
  text.index.append(tokens.subspan(text.known));
  text.known = tokens.size();
  return text.index;
}

void NgramDrafter::draft(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    index_of(job.sequence, job.tokens).draft(job.most, job.guesses - 1, job.drafts, job.others);
  }
}

bool NgramDrafter::may_draft_after_next(const ArrivalOrder& sequence,
                                        std::span<const TokenId> tokens) {
  return index_of(sequence, tokens).may_draft_after_next();
}

}  // namespace hyb
