#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/ids.h"
#include "core/memory/pool/layout.h"

namespace hyb {

/// Lists of superblocks; each superblock is in one list or none. All calls but the constructor take
/// constant time and allocate nothing.
class SuperblockLists {
 public:
  SuperblockLists(std::int32_t lists, std::int32_t superblocks);

  /// At the front. The superblock is in no list.
  void push(std::int32_t list, SuperblockId superblock);
  /// Does nothing when the superblock is in no list.
  void remove(SuperblockId superblock);

  std::optional<SuperblockId> front(std::int32_t list) const;
  std::optional<SuperblockId> next(SuperblockId superblock) const;
  std::int32_t count(std::int32_t list) const { return counts_[static_cast<std::size_t>(list)]; }
  std::optional<std::int32_t> list_of(SuperblockId superblock) const;

 private:
  struct Link {
    std::int32_t list = -1, next = -1, previous = -1;
  };
  Link& link(std::int32_t superblock) { return links_[static_cast<std::size_t>(superblock)]; }
  const Link& link(SuperblockId superblock) const {
    return links_[static_cast<std::size_t>(index(superblock))];
  }

  std::vector<std::int32_t> fronts_;
  std::vector<std::int32_t> counts_;
  std::vector<Link> links_;
};

/// An allocated unit, and whether its superblock had another owner before.
struct TakenUnit {
  std::int32_t unit;
  bool owner_changed = false;
  ViewId owner_before = no_view;
};

/// Owners of superblocks and user counts of units. Every call takes constant time, except for the
/// search of a bit among the units of one superblock.
///
/// A superblock whose last unit is dropped is free: any view may take it, its last owner first, so
/// that memory does not move back and forth. With fixed superblocks each view keeps its own.
class Superblocks {
 public:
  enum class Uncommitted : std::uint8_t { no, for_now, for_good };
  struct Superblock {
    ViewId owner = no_view;  ///< of a free one the last owner; no_view: never owned, or forgotten
    std::int32_t used = 0;   ///< units with users
    std::int32_t pins = 0;   ///< while there are some, its units in use are not moved
    bool is_free = false;    ///< any view may have it
    bool is_closed = false;
    Uncommitted uncommitted = Uncommitted::no;
  };

  explicit Superblocks(MemoryLayout layout);

  const MemoryLayout& layout() const { return layout_; }

  /// A unit with one user: the one after `after` when that is free (-1: no preference), else one of
  /// the fullest superblock that has any, so that sparse ones become empty, else one of a free
  /// superblock, which changes owner. nullopt: the view is dry.
  std::optional<TakenUnit> take(ViewId view, std::int32_t after = -1);

  void share(ViewId view, std::int32_t unit) {
    ++books(view).users[static_cast<std::size_t>(unit)];
  }
  void drop(ViewId view, std::int32_t unit) noexcept;
  std::int32_t users(ViewId view, std::int32_t unit) const;

  SuperblockId superblock_of(ViewId view, std::int32_t unit) const;

  /// Units that take() can hand out, free superblocks included.
  std::int64_t units_free(ViewId view) const;
  std::int64_t units_used(ViewId view) const { return books(view).units_used; }
  /// Superblocks in use by a view: at least one of their units is.
  std::int32_t superblocks_used(ViewId view) const { return books(view).superblocks_used; }
  std::int32_t free() const { return superblocks_free_; }
  /// Free ones that have memory: the bytes of their last owner, or given ahead.
  std::int32_t idle() const;
  /// Counts those of the view, which it takes first.
  std::int32_t idle(ViewId view) const;
  /// Units without a user in superblocks that the view uses.
  std::int64_t units_idle(ViewId view) const;
  bool is_fixed() const { return !layout_.fixed_superblocks.empty(); }

  /// A superblock of the view with about the fewest units in use, when the view's others have room
  /// for these. nullopt: they have not, or superblocks are fixed. Never one that is pinned.
  std::optional<SuperblockId> sparsest(ViewId view) const;
  void pin(SuperblockId superblock) { ++entry(superblock).pins; }
  void unpin(SuperblockId superblock) { --entry(superblock).pins; }
  /// Allocates no more units of the superblock until it has been free.
  void close(SuperblockId superblock);
  /// Units in use of a superblock, in ascending order.
  std::vector<std::int32_t> units_in_use(SuperblockId superblock) const;

  const Superblock& operator[](SuperblockId id) const {
    return superblocks_[static_cast<std::size_t>(index(id))];
  }
  /// A free superblock without owner, if there is one: the next that would get its first owner.
  std::optional<SuperblockId> ownerless() const;
  /// Gives a free superblock without owner to the view ahead of need, or forgets its last owner
  /// (no_view). It stays free, for any view.
  void set_last_owner(SuperblockId superblock, ViewId view);

  /// Takes a free superblock out of use, for now or for good: the device has no memory for it. Its
  /// last owner is forgotten.
  void set_uncommitted(SuperblockId superblock, bool for_good);
  /// Those taken out of use for now are free again.
  void retry_uncommitted();
  std::int32_t uncommitted() const { return superblocks_uncommitted_; }
  /// Counts those that were taken out of use for good.
  std::int32_t given_up() const { return superblocks_given_up_; }

  /// Throws when the counts do not add up: our own bug.
  void audit() const;

 private:
  struct Book {              ///< of a view
    std::int32_t units = 0;  ///< per superblock
    std::vector<std::int32_t> users;
    std::vector<std::uint64_t> taken;  ///< a bit per unit, whole words per superblock
    std::size_t words = 0;             ///< of `taken` per superblock
    std::uint64_t partial = 0;         ///< bit f: fullness f has superblocks with free units
    std::int64_t units_used = 0;
    std::int64_t units_open = 0;  ///< free ones in superblocks of the view's lists of fullness
    std::int32_t superblocks_used = 0;
  };

  Book& books(ViewId view) { return books_[static_cast<std::size_t>(index(view))]; }
  const Book& books(ViewId view) const { return books_[static_cast<std::size_t>(index(view))]; }
  Superblock& entry(SuperblockId id) { return superblocks_[static_cast<std::size_t>(index(id))]; }

  std::int32_t fullness_list(ViewId view, std::int32_t used) const;
  std::int32_t free_list(ViewId last_owner) const;
  void list(SuperblockId superblock);
  void unlist(SuperblockId superblock);
  std::optional<SuperblockId> fullest(ViewId view) const;
  std::optional<SuperblockId> any_free(ViewId view) const;
  std::int32_t first_free_unit(ViewId view, SuperblockId superblock) const;
  bool is_open(ViewId view, std::int32_t unit) const;
  void mark_taken(ViewId view, std::int32_t unit);

  MemoryLayout layout_;
  std::vector<Book> books_;
  std::vector<Superblock> superblocks_;
  SuperblockLists lists_;
  std::int32_t superblocks_free_ = 0, superblocks_uncommitted_ = 0, superblocks_given_up_ = 0;
};

}  // namespace hyb
