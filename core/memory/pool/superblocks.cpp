#include "core/memory/pool/superblocks.h"

#include <bit>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/error.h"

namespace hyb {
namespace {

std::optional<SuperblockId> found(std::int32_t superblock) {
  if (superblock < 0) return std::nullopt;
  return SuperblockId{superblock};
}

// Superblocks with free units are listed by how full they are, in this many classes per view; one
// more list holds the free superblocks that the view owned last.
constexpr std::int32_t classes = 64;
constexpr std::int32_t lists_per_view = classes + 1;

void check(const MemoryLayout& layout) {
  require(layout.superblocks >= 0 && layout.page_tokens >= 0, "memory: sizes are not negative");
  require(layout.groups.empty() || layout.page_tokens > 0, "memory: a page holds tokens");
  const auto& fixed = layout.fixed_superblocks;
  if (!fixed.empty()) {
    require(static_cast<std::int32_t>(fixed.size()) == layout.views() &&
                std::accumulate(fixed.begin(), fixed.end(), 0) == layout.superblocks,
            "memory: fixed superblocks add up");
  }
  for (std::int32_t view = 0; view < layout.views(); ++view) {
    const ViewId id{view};
    const std::int32_t units = layout.units_per_superblock(id);
    require(units >= 0, "memory: units per superblock are not negative");
    require(static_cast<std::size_t>(units) * layout.unit_bytes(id) <= layout.superblock_bytes,
            "memory: a view fits into its superblock");
    require(std::int64_t{units} * layout.superblocks < std::int64_t{1} << 31,
            "memory: unit numbers fit 31 bits");
  }
}

}  // namespace

SuperblockLists::SuperblockLists(std::int32_t lists, std::int32_t superblocks)
    : fronts_(static_cast<std::size_t>(lists), -1),
      counts_(static_cast<std::size_t>(lists), 0),
      links_(static_cast<std::size_t>(superblocks)) {}

void SuperblockLists::push(std::int32_t list, SuperblockId superblock) {
  const std::int32_t at = index(superblock);
  require(link(at).list < 0, "memory: a superblock is in one list");
  std::int32_t& front = fronts_[static_cast<std::size_t>(list)];
  link(at) = {.list = list, .next = front, .previous = -1};
  if (front >= 0) link(front).previous = at;
  front = at;
  ++counts_[static_cast<std::size_t>(list)];
}

void SuperblockLists::remove(SuperblockId superblock) {
  Link& removed = link(index(superblock));
  if (removed.list < 0) return;
  if (removed.previous >= 0) {
    link(removed.previous).next = removed.next;
  } else {
    fronts_[static_cast<std::size_t>(removed.list)] = removed.next;
  }
  if (removed.next >= 0) link(removed.next).previous = removed.previous;
  --counts_[static_cast<std::size_t>(removed.list)];
  removed = {};
}

std::optional<SuperblockId> SuperblockLists::front(std::int32_t list) const {
  return found(fronts_[static_cast<std::size_t>(list)]);
}

std::optional<SuperblockId> SuperblockLists::next(SuperblockId superblock) const {
  return found(link(superblock).next);
}

std::optional<std::int32_t> SuperblockLists::list_of(SuperblockId superblock) const {
  if (link(superblock).list < 0) return std::nullopt;
  return link(superblock).list;
}

Superblocks::Superblocks(MemoryLayout layout)
    : layout_((check(layout), std::move(layout))),
      books_(static_cast<std::size_t>(layout_.views())),
      superblocks_(static_cast<std::size_t>(layout_.superblocks)),
      lists_(layout_.views() * lists_per_view + 1, layout_.superblocks) {
  const auto count = static_cast<std::size_t>(layout_.superblocks);
  for (std::int32_t view = 0; view < layout_.views(); ++view) {
    Book& book = books(ViewId{view});
    book.units = layout_.units_per_superblock(ViewId{view});
    book.users.resize(count * static_cast<std::size_t>(book.units), 0);
    book.words = (static_cast<std::size_t>(book.units) + 63) / 64;
    book.taken.resize(count * book.words, 0);
  }
  if (!is_fixed()) {
    superblocks_free_ = layout_.superblocks;
    for (std::int32_t at = layout_.superblocks; at-- > 0;) {
      entry(SuperblockId{at}).is_free = true;
      list(SuperblockId{at});
    }
    return;
  }
  std::int32_t at = layout_.superblocks;
  for (std::int32_t view = layout_.views(); view-- > 0;) {
    for (std::int32_t i = layout_.fixed_superblocks[static_cast<std::size_t>(view)]; i-- > 0;) {
      entry(SuperblockId{--at}).owner = ViewId{view};
      if (books(ViewId{view}).units > 0) list(SuperblockId{at});
    }
  }
}

std::optional<TakenUnit> Superblocks::take(ViewId view, std::int32_t after) {
  Book& book = books(view);
  if (after >= 0 && is_open(view, after + 1)) {
    mark_taken(view, after + 1);
    return TakenUnit{.unit = after + 1};
  }
  if (const std::optional<SuperblockId> open = fullest(view)) {
    const std::int32_t unit = first_free_unit(view, *open);
    mark_taken(view, unit);
    return TakenUnit{.unit = unit};
  }
  if (is_fixed() || book.units == 0) return std::nullopt;
  const std::optional<SuperblockId> taken = any_free(view);
  if (!taken) return std::nullopt;
  unlist(*taken);
  --superblocks_free_;
  Superblock& superblock = entry(*taken);
  TakenUnit result{.unit = index(*taken) * book.units,
                   .owner_changed = superblock.owner != view,
                   .owner_before = superblock.owner};
  superblock.owner = view;
  superblock.is_free = false;
  list(*taken);
  mark_taken(view, result.unit);
  return result;
}

void Superblocks::drop(ViewId view, std::int32_t unit) noexcept {
  Book& book = books(view);
  if (--book.users[static_cast<std::size_t>(unit)] > 0) return;
  const SuperblockId id = superblock_of(view, unit);
  Superblock& superblock = entry(id);
  unlist(id);
  const auto place = static_cast<std::size_t>(unit % book.units);
  book.taken[static_cast<std::size_t>(index(id)) * book.words + place / 64] &=
      ~(std::uint64_t{1} << (place % 64));
  --superblock.used;
  --book.units_used;
  if (superblock.used == 0) {
    --book.superblocks_used;
    superblock.is_closed = false;
    superblock.is_free = !is_fixed();
    if (superblock.is_free) ++superblocks_free_;
  }
  if (!superblock.is_closed) list(id);
}

std::int32_t Superblocks::users(ViewId view, std::int32_t unit) const {
  return books(view).users[static_cast<std::size_t>(unit)];
}

SuperblockId Superblocks::superblock_of(ViewId view, std::int32_t unit) const {
  return SuperblockId{unit / books(view).units};
}

std::int64_t Superblocks::units_free(ViewId view) const {
  const Book& book = books(view);
  return book.units_open + std::int64_t{superblocks_free_} * book.units;
}

std::int64_t Superblocks::units_idle(ViewId view) const {
  const Book& book = books(view);
  return std::int64_t{book.superblocks_used} * book.units - book.units_used;
}

std::optional<SuperblockId> Superblocks::sparsest(ViewId view) const {
  const Book& book = books(view);
  if (book.partial == 0 || is_fixed()) return std::nullopt;
  const std::int32_t list = index(view) * lists_per_view + std::countr_zero(book.partial);
  std::optional<SuperblockId> found;
  // Those of one list differ little, and there may be many.
  std::int32_t looks = classes;
  for (auto at = lists_.front(list); at && looks-- > 0; at = lists_.next(*at)) {
    const Superblock& one = (*this)[*at];
    if (one.pins == 0 && (!found || one.used < (*this)[*found].used)) found = at;
  }
  if (!found) return std::nullopt;
  const Superblock& superblock = (*this)[*found];
  const std::int64_t room_elsewhere = book.units_open - (book.units - superblock.used);
  if (room_elsewhere < superblock.used) return std::nullopt;
  return found;
}

void Superblocks::close(SuperblockId superblock) {
  require(entry(superblock).used > 0, "memory: a superblock in use is closed");
  unlist(superblock);
  entry(superblock).is_closed = true;
}

std::vector<std::int32_t> Superblocks::units_in_use(SuperblockId superblock) const {
  std::vector<std::int32_t> found;
  const ViewId view = (*this)[superblock].owner;
  if (view == no_view) return found;
  const std::int32_t units = books(view).units;
  for (std::int32_t unit = index(superblock) * units; unit < (index(superblock) + 1) * units;
       ++unit) {
    if (users(view, unit) > 0) found.push_back(unit);
  }
  return found;
}

std::optional<SuperblockId> Superblocks::ownerless() const {
  return lists_.front(free_list(no_view));
}

void Superblocks::set_last_owner(SuperblockId superblock, ViewId view) {
  require(entry(superblock).is_free && (view == no_view || entry(superblock).owner == no_view),
          "memory: a free superblock is given ahead where it has no owner, or it is forgotten");
  unlist(superblock);
  entry(superblock).owner = view;
  list(superblock);
}

void Superblocks::set_uncommitted(SuperblockId superblock, bool for_good) {
  set_last_owner(superblock, no_view);
  unlist(superblock);
  entry(superblock).is_free = false;
  entry(superblock).uncommitted = for_good ? Uncommitted::for_good : Uncommitted::for_now;
  --superblocks_free_;
  ++superblocks_uncommitted_;
  if (for_good) ++superblocks_given_up_;
}

void Superblocks::retry_uncommitted() {
  for (std::int32_t at = layout_.superblocks; at-- > 0;) {
    Superblock& superblock = entry(SuperblockId{at});
    if (superblock.uncommitted != Uncommitted::for_now) continue;
    superblock.uncommitted = Uncommitted::no;
    superblock.is_free = true;
    list(SuperblockId{at});
    ++superblocks_free_;
    --superblocks_uncommitted_;
  }
}

std::int32_t Superblocks::fullness_list(ViewId view, std::int32_t used) const {
  const auto fullness = static_cast<std::int32_t>(std::int64_t{used} * classes / books(view).units);
  return index(view) * lists_per_view + fullness;
}

std::int32_t Superblocks::free_list(ViewId last_owner) const {
  if (last_owner == no_view) return layout_.views() * lists_per_view;
  return index(last_owner) * lists_per_view + classes;
}

std::int32_t Superblocks::idle() const {
  return is_fixed() ? 0 : superblocks_free_ - lists_.count(free_list(no_view));
}

std::int32_t Superblocks::idle(ViewId view) const { return lists_.count(free_list(view)); }

/// Puts it into the list for its owner and units; a full one is in none.
void Superblocks::list(SuperblockId id) {
  const Superblock& superblock = entry(id);
  if (superblock.is_free) return lists_.push(free_list(superblock.owner), id);
  Book& book = books(superblock.owner);
  if (superblock.used == book.units) return;
  const std::int32_t list = fullness_list(superblock.owner, superblock.used);
  lists_.push(list, id);
  book.partial |= std::uint64_t{1} << (list % lists_per_view);
  book.units_open += book.units - superblock.used;
}

void Superblocks::unlist(SuperblockId id) {
  const std::optional<std::int32_t> list = lists_.list_of(id);
  if (!list) return;
  lists_.remove(id);
  const std::int32_t fullness = *list % lists_per_view;
  if (*list == layout_.views() * lists_per_view || fullness == classes) return;
  const Superblock& superblock = entry(id);
  Book& book = books(superblock.owner);
  if (lists_.count(*list) == 0) book.partial &= ~(std::uint64_t{1} << fullness);
  book.units_open -= book.units - superblock.used;
}

/// The fullest superblock of the view that has room.
std::optional<SuperblockId> Superblocks::fullest(ViewId view) const {
  const std::uint64_t partial = books(view).partial;
  if (partial == 0) return std::nullopt;
  return lists_.front(index(view) * lists_per_view + 63 - std::countl_zero(partial));
}

/// First the view's own, then one without owner, then one of the view that has the most free ones.
std::optional<SuperblockId> Superblocks::any_free(ViewId view) const {
  if (const auto own = lists_.front(free_list(view))) return own;
  if (const auto without_owner = ownerless()) return without_owner;
  std::int32_t most = free_list(view);
  for (std::int32_t other = 0; other < layout_.views(); ++other) {
    const std::int32_t list = free_list(ViewId{other});
    if (lists_.count(list) > lists_.count(most)) most = list;
  }
  return lists_.front(most);
}

std::int32_t Superblocks::first_free_unit(ViewId view, SuperblockId superblock) const {
  const Book& book = books(view);
  const std::uint64_t* words =
      &book.taken[static_cast<std::size_t>(index(superblock)) * book.words];
  std::int32_t word = 0;
  while (~words[word] == 0) ++word;
  return index(superblock) * book.units + 64 * word + std::countr_one(words[word]);
}

bool Superblocks::is_open(ViewId view, std::int32_t unit) const {
  const Book& book = books(view);
  if (static_cast<std::size_t>(unit) >= book.users.size() || users(view, unit) > 0) return false;
  const Superblock& superblock = (*this)[superblock_of(view, unit)];
  return superblock.owner == view && !superblock.is_free && !superblock.is_closed;
}

void Superblocks::mark_taken(ViewId view, std::int32_t unit) {
  Book& book = books(view);
  const SuperblockId id = superblock_of(view, unit);
  unlist(id);
  const auto place = static_cast<std::size_t>(unit % book.units);
  book.taken[static_cast<std::size_t>(index(id)) * book.words + place / 64] |= std::uint64_t{1}
                                                                               << (place % 64);
  book.users[static_cast<std::size_t>(unit)] = 1;
  ++book.units_used;
  if (++entry(id).used == 1) ++book.superblocks_used;
  list(id);
}

void Superblocks::audit() const {
  std::int32_t free = 0, uncommitted = 0, given_up = 0;
  std::vector<std::int64_t> used(books_.size(), 0), open(books_.size(), 0);
  std::vector<std::int32_t> in_use(books_.size(), 0);
  for (std::int32_t at = 0; at < layout_.superblocks; ++at) {
    const SuperblockId id{at};
    const Superblock& superblock = (*this)[id];
    const std::string who = "memory: superblock " + std::to_string(at);
    require(superblock.pins >= 0 && (superblock.pins == 0 || superblock.used > 0),
            who + " is pinned by what uses it");
    std::int32_t users_found = 0;
    for (std::int32_t view = 0; view < layout_.views(); ++view) {
      const Book& book = books(ViewId{view});
      for (std::int32_t unit = at * book.units; unit < (at + 1) * book.units; ++unit) {
        const std::int32_t count = users(ViewId{view}, unit);
        const auto place = static_cast<std::size_t>(unit % book.units);
        const std::uint64_t word =
            book.taken[static_cast<std::size_t>(at) * book.words + place / 64];
        require(count >= 0, who + " has a unit that was dropped too often");
        require((count > 0) == ((word >> (place % 64) & 1) != 0), who + " has a wrong bit");
        require(count == 0 || superblock.owner == ViewId{view}, who + " has two owners");
        users_found += count > 0 ? 1 : 0;
      }
    }
    require(users_found == superblock.used, who + " counts its units wrongly");
    const bool is_uncommitted = superblock.uncommitted != Uncommitted::no;
    require((superblock.is_free || is_uncommitted) == (!is_fixed() && users_found == 0) &&
                !(superblock.is_free && is_uncommitted),
            who + " is free or it is not");
    if (is_uncommitted) ++uncommitted;
    if (superblock.uncommitted == Uncommitted::for_good) ++given_up;
    if (superblock.is_free) ++free;
    if (superblock.is_free || superblock.owner == no_view) continue;
    const auto owner = static_cast<std::size_t>(index(superblock.owner));
    used[owner] += users_found;
    in_use[owner] += users_found > 0 ? 1 : 0;
    if (!superblock.is_closed) open[owner] += books_[owner].units - users_found;
  }
  require(free == superblocks_free_ && uncommitted == superblocks_uncommitted_ &&
              given_up == superblocks_given_up_,
          "memory: free superblocks are counted");
  for (std::size_t view = 0; view < books_.size(); ++view) {
    const Book& book = books_[view];
    require(used[view] == book.units_used && open[view] == book.units_open &&
                in_use[view] == book.superblocks_used,
            "memory: units of view " + std::to_string(view) + " are counted");
  }
}

}  // namespace hyb
