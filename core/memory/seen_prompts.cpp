#include "core/memory/seen_prompts.h"

namespace hyb {

std::int32_t SeenPrompts::branch_of(const Tree::Match& match, std::size_t length) const {
  if (match.tokens == static_cast<std::int32_t>(length)) return 0;
  if (match.partial < 0 && tree_[match.last()].value.is_end) return 0;
  return match.tokens;
}

/// The leaf was seen at this time; where it is a new leaf, for the first time.
void SeenPrompts::rest(std::int32_t leaf, std::int64_t time) {
  leaf_ages_.erase({tree_[leaf].value.time, leaf});
  tree_[leaf].value.time = time;
  leaf_ages_.emplace(time, leaf);
}

std::int32_t SeenPrompts::see(std::span<const TokenId> prompt, std::size_t endings_max) {
  if (prompt.empty()) return 0;
  const Tree::Match match = tree_.match(prompt);
  const std::int32_t branch = branch_of(match, prompt.size());
  if (static_cast<std::int64_t>(prompt.size()) > tokens_max_) return branch;
  std::int32_t node = match.partial >= 0 ? tree_.split(match.partial, match.tokens) : match.last();
  const auto more = prompt.subspan(static_cast<std::size_t>(match.tokens));
  if (!more.empty()) {
    leaf_ages_.erase({tree_[node].value.time, node});  // it may have been a leaf
    node = tree_.append(node, more);
    tokens_ += static_cast<std::int64_t>(more.size());
  }
  tree_[node].value.is_end = true;
  if (tree_.is_leaf(node)) rest(node, ++now_);
  while (tokens_ > tokens_max_ || leaf_ages_.size() > endings_max) forget_oldest();
  return branch;
}

void SeenPrompts::forget_oldest() {
  const auto [time, leaf] = *leaf_ages_.begin();
  leaf_ages_.erase(leaf_ages_.begin());
  const std::int32_t parent = tree_[leaf].parent;
  tokens_ -= tree_[leaf].edge_length();
  tree_.remove_leaf(leaf);
  if (parent == 0) return;
  if (tree_.is_leaf(parent)) {
    rest(parent, time);  // a prompt ended there that the forgotten ones went on from
  } else if (tree_[parent].children.size() == 1 && !tree_[parent].value.is_end) {
    tree_.merge_into_child(parent);
  }
}

}  // namespace hyb
