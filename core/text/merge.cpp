#include "core/text/merge.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>

#include "core/base/error.h"

namespace hyb {
namespace {

using Rank = MergeTable::Rank;
using Place = std::int32_t;

/// Looking at every pair for every merge is the fastest way for words of this size.
constexpr std::size_t short_symbols = 48;

void merge_short(std::vector<TokenId>& symbols, const MergeTable& table) {
  Rank ranks[short_symbols];
  std::size_t count = symbols.size();
  for (std::size_t i = 0; i + 1 < count; ++i) ranks[i] = table.rank(symbols[i], symbols[i + 1]);
  while (count > 1) {
    const Rank* lowest = std::min_element(ranks, ranks + count - 1);
    if (*lowest == MergeTable::none) break;
    const auto i = static_cast<std::size_t>(lowest - ranks);
    symbols[i] = table.merged(*lowest);
    for (std::size_t j = i + 1; j + 1 < count; ++j) symbols[j] = symbols[j + 1];
    for (std::size_t j = i; j + 2 < count; ++j) ranks[j] = ranks[j + 1];
    --count;
    if (i > 0) ranks[i - 1] = table.rank(symbols[i - 1], symbols[i]);
    if (i + 1 < count) ranks[i] = table.rank(symbols[i], symbols[i + 1]);
  }
  symbols.resize(count);
}

/// Candidate merges, lowest rank first, then leftmost. All merges of one rank join the same pair
/// and create other pairs, so nearly all places of a rank are known, in order, before the first of
/// them is taken: a list for every rank costs four bytes a candidate where one heap costs more and
/// jumps about in memory.
class MergeQueue {
 public:
  void add(Rank rank, Place place) {
    auto [found, fresh] = lists_.try_emplace(rank);
    if (fresh) ranks_.push(rank);
    List& list = found->second;
    if (list.opened) {
      list.late.push(place);
    } else {
      list.places.push_back(place);
    }
  }

  /// Takes the first candidate; false where none is left.
  bool take(Rank& rank, Place& place) {
    while (!ranks_.empty()) {
      rank = ranks_.top();
      List& list = lists_.at(rank);
      if (list.take(place)) return true;
      ranks_.pop();
      lists_.erase(rank);
    }
    return false;
  }

 private:
  struct List {
    std::vector<Place> places;
    std::size_t taken = 0;
    bool opened = false;
    std::priority_queue<Place, std::vector<Place>, std::greater<>> late;

    bool take(Place& place) {
      if (!opened) {
        if (!std::is_sorted(places.begin(), places.end())) std::sort(places.begin(), places.end());
        opened = true;
      }
      const bool listed = taken < places.size();
      if (listed && (late.empty() || places[taken] <= late.top())) {
        place = places[taken++];
        return true;
      }
      if (late.empty()) return false;
      place = late.top();
      late.pop();
      return true;
    }
  };

  std::unordered_map<Rank, List> lists_;
  std::priority_queue<Rank, std::vector<Rank>, std::greater<>> ranks_;
};

/// A word as a chain: a symbol stands at the place of its first part, and the number of parts at
/// its first and at its last place.
class Chain {
 public:
  Chain(std::vector<TokenId>& symbols, const MergeTable& table)
      : symbols_(symbols), table_(table), parts_(symbols.size(), 1) {}

  void merge() {
    const auto count = static_cast<Place>(symbols_.size());
    for (Place place = 0; place + 1 < count; ++place) offer(place);
    Rank rank = 0;
    Place place = 0;
    while (queue_.take(rank, place)) {
      // A candidate is stale when one of its symbols has merged with another meanwhile.
      if (is_first(place) && rank_at(place) == rank) join(place, rank);
    }
    std::size_t kept = 0;
    for (Place at = 0; at < count; at = next(at)) symbols_[kept++] = symbol(at);
    symbols_.resize(kept);
  }

 private:
  TokenId& symbol(Place place) { return symbols_[static_cast<std::size_t>(place)]; }
  Place& parts(Place place) { return parts_[static_cast<std::size_t>(place)]; }
  Place next(Place place) { return place + parts(place); }
  bool is_first(Place place) { return parts(place) > 0; }

  Rank rank_at(Place place) {
    const Place right = next(place);
    if (right >= static_cast<Place>(symbols_.size())) return MergeTable::none;
    return table_.rank(symbol(place), symbol(right));
  }

  void offer(Place place) {
    const Rank rank = rank_at(place);
    if (rank != MergeTable::none) queue_.add(rank, place);
  }

  void join(Place place, Rank rank) {
    const Place right = next(place);
    const Place end = next(right);
    symbol(place) = table_.merged(rank);
    parts(right) = 0;
    parts(place) = end - place;
    if (end - 1 != place) parts(end - 1) = -(end - place);
    if (place > 0) {
      const Place last = parts(place - 1);
      offer(last > 0 ? place - 1 : place + last);
    }
    offer(place);
  }

  std::vector<TokenId>& symbols_;
  const MergeTable& table_;
  // Of the symbol that begins here, or negative of the symbol that ends here; other places hold
  // what is no longer read.
  std::vector<Place> parts_;
  MergeQueue queue_;
};

}  // namespace

void merge_symbols(std::vector<TokenId>& symbols, const MergeTable& table) {
  require(symbols.size() < INT32_MAX, "merge: a word has fewer than 2^31 - 1 symbols");
  if (symbols.size() < 2) return;
  if (symbols.size() <= short_symbols) return merge_short(symbols, table);
  Chain(symbols, table).merge();
}

}  // namespace hyb
