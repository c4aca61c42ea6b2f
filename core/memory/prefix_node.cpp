#include "core/memory/prefix_node.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace hyb {

std::size_t ChildNodes::home(TokenId first) const {
  // Multiplication by 2^32 / golden ratio spreads neighbouring tokens; its upper bits count.
  const std::uint32_t spread = static_cast<std::uint32_t>(index(first)) * 2654435769U;
  return (spread >> 7) & (table_.size() - 1);
}

PrefixNode* ChildNodes::find(TokenId first) const {
  if (table_.empty()) {
    for (const Entry& entry : few_) {
      if (entry.first == first && entry.node != nullptr) return entry.node;
    }
    return nullptr;
  }
  for (std::size_t at = home(first);; at = (at + 1) & (table_.size() - 1)) {
    const Entry& entry = table_[at];
    if (entry.node == nullptr || entry.first == first) return entry.node;
  }
}

/// Where the token is, else the free place where it belongs; null: `few_` is full.
ChildNodes::Entry* ChildNodes::place(TokenId first) {
  if (table_.empty()) {
    Entry* free = nullptr;
    for (Entry& entry : few_) {
      if (entry.node == nullptr) {
        free = &entry;
      } else if (entry.first == first) {
        return &entry;
      }
    }
    return free;
  }
  std::size_t at = home(first);
  while (table_[at].node != nullptr && table_[at].first != first) {
    at = (at + 1) & (table_.size() - 1);
  }
  return &table_[at];
}

/// Back to `few_` when `places` is 0.
void ChildNodes::resize(std::size_t places) {
  std::vector<Entry> entries(places);
  std::swap(table_, entries);
  if (entries.empty()) entries.assign(few_.begin(), few_.end());
  few_ = {};
  for (const Entry& entry : entries) {
    if (entry.node != nullptr) *place(entry.first) = entry;
  }
}

void ChildNodes::insert(TokenId first, PrefixNode* node) {
  if (table_.empty() && size_ == static_cast<std::int32_t>(few_.size())) resize(8);
  if (!table_.empty() && 2 * (static_cast<std::size_t>(size_) + 1) > table_.size()) {
    resize(2 * table_.size());
  }
  Entry* entry = place(first);
  require(entry != nullptr && entry->node == nullptr, "prefix tree: one child per first token");
  *entry = {first, node};
  ++size_;
}

void ChildNodes::replace(TokenId first, PrefixNode* node) {
  Entry* entry = place(first);
  require(entry != nullptr && entry->node != nullptr, "prefix tree: a child to replace");
  entry->node = node;
}

void ChildNodes::erase(TokenId first) {
  Entry* entry = place(first);
  require(entry != nullptr && entry->node != nullptr, "prefix tree: a child to erase");
  *entry = {};
  --size_;
  if (table_.empty()) return;

  // Entries behind the gap that probing would no longer reach move up into it.
  const std::size_t mask = table_.size() - 1;
  auto gap = static_cast<std::size_t>(entry - table_.data());
  for (std::size_t at = (gap + 1) & mask; table_[at].node != nullptr; at = (at + 1) & mask) {
    const std::size_t from = home(table_[at].first);
    if (((at - from) & mask) < ((at - gap) & mask)) continue;
    table_[gap] = std::exchange(table_[at], {});
    gap = at;
  }
  if (size_ == 1) {
    resize(0);
  } else if (static_cast<std::size_t>(size_) * 8 < table_.size() && table_.size() > 8) {
    resize(table_.size() / 2);
  }
}

PrefixNode* ChildNodes::any(const PrefixNode* other) const {
  const auto found = std::find_if(entries().begin(), entries().end(), [&](const Entry& entry) {
    return entry.node != nullptr && entry.node != other;
  });
  return found == entries().end() ? nullptr : found->node;
}

}  // namespace hyb
