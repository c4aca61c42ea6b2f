#include "core/memory/tier/tier_index.h"

#include <algorithm>

#include "core/base/error.h"

namespace hyb {
namespace {

constexpr std::int32_t node_tokens_without_pages = 64;

std::uint32_t sectors_in(std::uint64_t budget_bytes) {
  constexpr std::uint64_t sectors_max = 0xFFFFFFFF;
  return static_cast<std::uint32_t>(std::min(budget_bytes / sector_bytes, sectors_max));
}

}  // namespace

TierIndex::TierIndex(const MemoryLayout& layout, const TierLimits& limits)
    : layout_(layout),
      limits_(limits),
      extents_(sectors_in(limits.budget_bytes)),
      page_tokens_(layout.groups.empty() ? node_tokens_without_pages : layout.page_tokens) {}

TierIndex::~TierIndex() {
  // Without recursion: a line of nodes may be long.
  std::vector<std::unique_ptr<TierNode>> open;
  const auto take_children = [&](TierNode& node) {
    for (auto& [tokens, child] : node.children) open.push_back(std::move(child));
    node.children.clear();
  };
  take_children(root_);
  while (!open.empty()) {
    const std::unique_ptr<TierNode> node = std::move(open.back());
    open.pop_back();
    take_children(*node);
  }
}

const TierNode* TierIndex::walk(std::span<const TokenId> key) const {
  const TierNode* node = &root_;
  std::vector<TokenId> page;
  const auto step = static_cast<std::size_t>(page_tokens_);
  for (; key.size() >= step; key = key.subspan(step)) {
    page.assign(key.begin(), key.begin() + static_cast<std::ptrdiff_t>(step));
    const auto child = node->children.find(page);
    if (child == node->children.end()) break;
    node = child->second.get();
  }
  return node;
}

TierNode& TierIndex::grow(std::span<const TokenId> key) {
  TierNode* node = &root_;
  const auto step = static_cast<std::size_t>(page_tokens_);
  for (; key.size() >= step; key = key.subspan(step)) {
    const auto end = key.begin() + static_cast<std::ptrdiff_t>(step);
    auto [child, is_new] = node->children.try_emplace(std::vector<TokenId>(key.begin(), end));
    if (is_new) {
      child->second = std::make_unique<TierNode>();
      child->second->parent = node;
      child->second->tokens = &child->first;
      child->second->pages = node->pages + 1;
      for (std::int32_t group = 0; group < layout_.group_count(); ++group) {
        child->second->groups.push_back({.view = ViewId{group}, .page = node->pages});
      }
      ++nodes_;
    }
    node = child->second.get();
  }
  return *node;
}

TierEntry* TierIndex::find(std::span<const TokenId> key, Precision precision) const {
  const TierNode* node = walk(key);
  const auto tail = key.subspan(static_cast<std::size_t>(node->pages * page_tokens_));
  for (const auto& entry : node->entries) {
    if (entry->precision == precision &&
        std::equal(tail.begin(), tail.end(), entry->tail.begin(), entry->tail.end())) {
      return entry.get();
    }
  }
  return nullptr;
}

/// Adds the units of the first hit.length tokens, of which `node` has the last full page.
void TierIndex::collect(const TierNode* node, TierEntry* entry, TierHit& hit) const {
  std::vector<const TierNode*> path(static_cast<std::size_t>(node->pages));
  for (; node->parent != nullptr; node = node->parent) {
    path[static_cast<std::size_t>(node->pages - 1)] = node;
  }
  for (std::size_t group = 0; group < layout_.groups.size(); ++group) {
    const auto number = static_cast<std::int32_t>(group);
    for (const std::int32_t page : held_pages(layout_, number, hit.length)) {
      const auto at = static_cast<std::size_t>(page);
      hit.units.push_back(at < path.size() ? &const_cast<TierNode*>(path[at])->groups[group]
                                           : &entry->last_page[group]);
    }
  }
  if (entry != nullptr && layout_.has_slots()) hit.units.push_back(&entry->state);
}

bool TierIndex::is_whole(std::span<StoredUnit* const> units) {
  return std::all_of(units.begin(), units.end(),
                     [](const StoredUnit* unit) { return !unit->extents.empty(); });
}

/// The deepest entry of a node on the path of the key that is on the path, too.
TierEntry* TierIndex::deepest(const TierNode& node, std::span<const TokenId> key) const {
  const auto begin = static_cast<std::size_t>(node.pages * page_tokens_);
  if (key.size() < begin) return nullptr;
  const auto rest = key.subspan(begin);
  TierEntry* found = nullptr;
  for (const auto& entry : node.entries) {
    const bool fits = entry->tail.size() <= rest.size() &&
                      std::equal(entry->tail.begin(), entry->tail.end(), rest.begin());
    if (fits && (found == nullptr || entry->length > found->length)) found = entry.get();
  }
  return found;
}

TierHit TierIndex::match(std::span<const TokenId> prompt, std::int32_t limit) const {
  prompt = prompt.first(std::min(prompt.size(), static_cast<std::size_t>(std::max(limit, 0))));
  const TierNode* node = walk(prompt);
  if (!layout_.has_slots() && node->pages > 0) {
    TierHit hit{.length = node->pages * page_tokens_};
    collect(node, nullptr, hit);
    if (is_whole(hit.units)) return hit;
  }
  for (; node != nullptr; node = node->parent) {
    TierEntry* const entry = deepest(*node, prompt);
    if (entry == nullptr) continue;
    TierHit hit{.length = entry->length,
                .precision = entry->precision,
                .place = entry->place,
                .entry = entry};
    hit.units = units(*entry);
    if (is_whole(hit.units)) return hit;
  }
  return {};
}

std::int32_t TierIndex::known(std::span<const TokenId> prompt) const {
  return walk(prompt)->pages * page_tokens_;
}

std::vector<StoredUnit*> TierIndex::units(TierEntry& entry) const {
  TierHit hit{.length = entry.length};
  collect(entry.node, &entry, hit);
  return std::move(hit.units);
}

TierEntry& TierIndex::add(std::span<const TokenId> key, Precision precision, SnapshotPlace place) {
  TierNode& node = grow(key);
  const auto tail = key.subspan(static_cast<std::size_t>(node.pages * page_tokens_));
  node.entries.push_back(std::make_unique<TierEntry>());
  TierEntry& entry = *node.entries.back();
  entry.node = &node;
  entry.tail.assign(tail.begin(), tail.end());
  entry.length = static_cast<std::int32_t>(key.size());
  entry.precision = precision;
  entry.place = place;
  for (std::int32_t group = 0; group < layout_.group_count(); ++group) {
    entry.last_page.push_back({.view = ViewId{group}, .page = node.pages});
  }
  const bool is_exact = precision == Precision::exact;
  entry.state.view = is_exact ? layout_.slot_view() : layout_.packed_view();
  for (StoredUnit* const unit : units(entry)) ++unit->users;
  rank(entry, 0);
  return entry;
}

std::vector<TokenId> TierIndex::key(const TierEntry& entry) const {
  std::vector<TokenId> tokens(static_cast<std::size_t>(entry.length));
  auto end = std::copy_backward(entry.tail.begin(), entry.tail.end(), tokens.end());
  for (const TierNode* node = entry.node; node->parent != nullptr; node = node->parent) {
    end = std::copy_backward(node->tokens->begin(), node->tokens->end(), end);
  }
  return tokens;
}

const TierEntry* TierIndex::above(const TierEntry& entry) const {
  const std::vector<TokenId> tokens = key(entry);
  const auto way = std::span(tokens).first(tokens.size() - 1);
  const TierEntry* found = nullptr;
  for (const TierNode* node = entry.node; node != nullptr && found == nullptr;
       node = node->parent) {
    found = deepest(*node, way);
  }
  return found;
}

std::uint64_t TierIndex::bytes_of(std::span<StoredUnit* const> units) const {
  std::uint64_t bytes = 0;
  for (StoredUnit* const unit : units) bytes += layout_.unit_bytes(unit->view);
  return bytes;
}

std::uint32_t TierIndex::sectors_of(const StoredUnit& unit) const {
  return static_cast<std::uint32_t>((layout_.unit_bytes(unit.view) + sector_bytes - 1) /
                                    sector_bytes);
}

std::uint64_t TierIndex::bytes_used() const {
  return std::uint64_t{extents_.total() - extents_.free()} * sector_bytes;
}

bool TierIndex::is_faster_read(std::uint64_t bytes, std::int32_t length,
                               std::int32_t resumable) const {
  const double seconds = limits_.cost.of(length) - limits_.cost.of(resumable);
  return seconds * limits_.bytes_per_second >= static_cast<double>(bytes);
}

std::optional<std::vector<StoredUnit*>> TierIndex::worth_reading(const TierHit& hit,
                                                                 std::int32_t shared,
                                                                 std::int32_t resumable) const {
  std::vector<StoredUnit*> units = hit.units;
  std::erase_if(units, [&](const StoredUnit* unit) {
    const bool is_page = index(unit->view) < layout_.group_count();
    return is_page && (unit->page + 1) * layout_.page_tokens <= shared;
  });
  if (!is_faster_read(bytes_of(units), hit.length, resumable)) return std::nullopt;
  return units;
}

bool TierIndex::admit(TierEntry& entry) {
  rank_by_worth(entry);
  if (is_faster_read(bytes_of(units(entry)), entry.length, 0) && make_room(entry)) return true;
  remove(entry);
  return false;
}

/// A snapshot is worth the seconds that it saves compared with the next one above it, per byte.
void TierIndex::rank_by_worth(TierEntry& entry) {
  const TierEntry* const before = above(entry);
  std::uint64_t own_bytes = 1;
  for (StoredUnit* const unit : units(entry)) {
    if (unit->users == 1) own_bytes += sectors_of(*unit) * sector_bytes;
  }
  const double seconds =
      limits_.cost.of(entry.length) - limits_.cost.of(before ? before->length : 0);
  entry.worth = seconds / static_cast<double>(own_bytes);
  touch(entry);
}

bool TierIndex::make_room(TierEntry& entry) {
  const std::vector<StoredUnit*> all = units(entry);
  for (;;) {
    std::uint64_t needed = 0;
    for (StoredUnit* const unit : all) {
      if (unit->extents.empty()) needed += sectors_of(*unit);
    }
    if (needed <= extents_.free() && bytes() <= limits_.index_bytes_max) break;
    const auto victim = std::find_if(by_rank_.begin(), by_rank_.end(),
                                     [&](const auto& other) { return other.second != &entry; });
    if (victim == by_rank_.end() || victim->first.first > entry.rank.first) return false;
    level_ = std::max(level_, victim->first.first);
    remove(*victim->second);
    ++evicted_;
  }
  for (StoredUnit* const unit : all) {
    if (unit->extents.empty()) unit->extents = *extents_.take(sectors_of(*unit));
  }
  return true;
}

void TierIndex::forget(StoredUnit& unit) {
  extents_.give_back(unit.extents);
  unit.extents.clear();
}

void TierIndex::remove(TierEntry& entry) {
  for (StoredUnit* const unit : units(entry)) {
    if (--unit->users == 0) forget(*unit);
  }
  by_rank_.erase(entry.rank);
  TierNode* const node = entry.node;
  std::erase_if(node->entries, [&](const auto& other) { return other.get() == &entry; });
  prune(node);
}

void TierIndex::prune(TierNode* node) {
  while (node->parent != nullptr && node->entries.empty() && node->children.empty()) {
    TierNode* const parent = node->parent;
    parent->children.erase(parent->children.find(*node->tokens));
    --nodes_;
    node = parent;
  }
}

void TierIndex::rank(TierEntry& entry, double value) {
  by_rank_.erase(entry.rank);
  entry.rank = {value, ++ranked_};
  by_rank_.emplace(entry.rank, &entry);
}

void TierIndex::touch(TierEntry& entry) { rank(entry, level_ + entry.worth); }

std::size_t TierIndex::bytes() const {
  constexpr std::size_t sum = 48;  // in the queue
  const std::size_t unit = sizeof(StoredUnit) + 2 * sizeof(Extent) + 16 + sum;
  const std::size_t node = sizeof(TierNode) + 96 + layout_.groups.size() * unit +
                           static_cast<std::size_t>(page_tokens_) * sizeof(TokenId);
  const std::size_t entry = sizeof(TierEntry) + 160 + layout_.groups.size() * unit;
  return nodes_ * node + entries() * entry;
}

void TierIndex::audit() const {
  std::map<const StoredUnit*, std::int32_t> users;
  for (const auto& [rank, entry] : by_rank_) {
    require(entry->rank == rank, "tier: an entry knows its rank");
    for (const StoredUnit* const unit : units(*entry)) ++users[unit];
  }
  std::uint64_t sectors = 0;
  for (const auto& [unit, count] : users) {
    require(unit->users == count, "tier: users are counted");
    for (const Extent extent : unit->extents) sectors += extent.count;
  }
  require(sectors * sector_bytes == bytes_used(), "tier: extents belong to the units of entries");
  std::size_t nodes = 0, entries = 0;
  std::vector<const TierNode*> open = {&root_};
  while (!open.empty()) {
    const TierNode* const node = open.back();
    open.pop_back();
    entries += node->entries.size();
    for (const StoredUnit& unit : node->groups) {
      require(users.contains(&unit) || (unit.users == 0 && unit.extents.empty()),
              "tier: what no entry needs is not stored");
    }
    for (const auto& [tokens, child] : node->children) {
      require(child->parent == node && child->pages == node->pages + 1,
              "tier: nodes hang together");
      require(!child->children.empty() || !child->entries.empty(), "tier: every leaf has an entry");
      ++nodes;
      open.push_back(child.get());
    }
  }
  require(nodes == nodes_ && entries == by_rank_.size(), "tier: nodes and entries are counted");
}

}  // namespace hyb
