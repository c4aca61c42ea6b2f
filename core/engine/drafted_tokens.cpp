#include "core/engine/drafted_tokens.h"

#include <algorithm>

#include "core/base/error.h"

namespace hyb {

void DraftedTokens::set_drafts(std::span<const TokenId> drafts) {
  require(drafts_ == 0, "sequence: drafts are set once");
  all_.insert(all_.end(), drafts.begin(), drafts.end());
  drafts_ = static_cast<std::int32_t>(drafts.size());
}

void DraftedTokens::add_branch(std::span<const TokenId> drafts, std::int32_t shared) {
  require(shared < std::ssize(drafts), "sequence: a branch has a draft of its own");
  Branch& branch = branches_.emplace_back(Branch{.tokens = {}, .known = known(), .shared = shared});
  branch.tokens.reserve(static_cast<std::size_t>(known()) + drafts.size());
  branch.tokens.assign(all_.begin(), all_.end() - drafts_);
  branch.tokens.insert(branch.tokens.end(), drafts.begin(), drafts.end());
}

void DraftedTokens::drop_drafts() {
  all_.resize(static_cast<std::size_t>(known()));
  drafts_ = 0;
  branches_.clear();
}

bool DraftedTokens::is_drafted(const SampledToken& sampled) const {
  return drafts_ > 0 && sampled.finite && *(all_.end() - drafts_) == sampled.token;
}

std::optional<std::int32_t> DraftedTokens::take_branch(const SampledToken& sampled) {
  if (!sampled.finite || is_drafted(sampled)) return std::nullopt;
  for (std::size_t i = 0; i < branches_.size(); ++i) {
    const std::vector<TokenId>& other = branches_[i].tokens;
    const std::int32_t begin = branches_[i].known, accepted = known();
    if (std::ssize(other) <= accepted || other[static_cast<std::size_t>(accepted)] != sampled.token)
      continue;
    if (!std::equal(other.begin() + begin, other.begin() + accepted, all_.begin() + begin))
      continue;
    drafts_ = static_cast<std::int32_t>(other.size()) - accepted;
    all_.assign(other.begin(), other.end());
    return static_cast<std::int32_t>(i);
  }
  return std::nullopt;
}

void DraftedTokens::accept(const SampledToken& sampled) {
  if (is_drafted(sampled)) {
    --drafts_;
    return;
  }
  drop_drafts();
  all_.push_back(sampled.token);
}

}  // namespace hyb
