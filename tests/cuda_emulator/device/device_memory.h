#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "tests/cuda_emulator/card.h"

namespace emulator {

/// A bit for each card.
using CardSet = std::uint32_t;
inline constexpr CardSet no_card = 0, every_card = (1U << cards_max) - 1;
constexpr CardSet only_card(int card) { return 1U << card; }

/// What memory is requested: by cudaMalloc, for physical handles, for graphs; and the host's
/// pinned.
enum class Holder : std::uint8_t { allocation, handle, graph, pinned };

/// How many bytes of a card each purpose holds, and which requests for more it refuses. Pinned
/// memory is counted with the card that was current. Calls come from one host thread at a time.
class Ledger {
 public:
  /// False, and nothing is counted: refused.
  bool take(Holder holder, std::size_t bytes);
  void give_back(Holder holder, std::size_t bytes);

  std::size_t bytes(Holder holder) const { return bytes_[static_cast<std::size_t>(holder)]; }
  /// Of all but pinned memory, which is the host's.
  std::size_t device_bytes() const;
  std::size_t free_bytes() const;

  /// Requests so far, refused ones too.
  std::int64_t requests() const { return requests_; }
  /// Refuses the n-th request from now on, the first being 1, and the `count` - 1 after it; 0:
  /// none.
  void refuse(std::int64_t n, std::int64_t count = 1);

  std::size_t bytes_max = std::size_t{1} << 30;  ///< of the card

 private:
  std::array<std::size_t, 4> bytes_{};
  std::int64_t requests_ = 0;
  std::int64_t refuse_first_ = 0, refuse_end_ = 0;
};

Ledger& ledger(int card = 0);

/// The memory of all cards, and the host's pinned memory. An allocation ends at a page that may not
/// be touched, and begins as 0xff bytes (NaN). It is open to the kernels of its card and to the
/// copies of the runtime; to other cards and to the host's code it is closed, as on a card. Calls
/// come from one host thread at a time.
class DeviceMemory {
 public:
  static constexpr std::size_t alignment = 256;  ///< of cudaMalloc

  /// Null when not enough is left.
  void* allocate(int card, std::size_t bytes);
  /// From now on allocations are address ranges that no one may touch.
  void reserve_only() { reserves_only_ = true; }
  /// False when no allocation begins here.
  bool release(void* at);
  bool is_allocation(const void* at) const { return ranges_.contains(address(at)); }

  /// Is all of it inside of one allocation, or of mappings that adjoin, of whatever card?
  bool contains(const void* at, std::size_t bytes) const;
  /// The same, and all of it is memory of this card.
  bool is_of(int card, const void* at, std::size_t bytes) const;
  /// Why kernels of this card may not touch it: "that are not inside of an allocation of the
  /// device", "of card 1, which card 0 may not touch". Empty: they may.
  std::string obstacle(int card, const void* at, std::size_t bytes) const;
  /// The card whose memory the byte is; -1: of none.
  int card_of(const void* at) const;
  /// Is it inside of an allocation of a card, or just next to one?
  bool is_near(const void* at) const;

  /// Mappings of the virtual-memory calls are known, but open to the host. At first no card may
  /// touch one; only instrumented kernels, and what is checked in all, are held to that.
  void add_mapping(int card, void* at, std::size_t bytes);
  /// Further cards that may touch what is mapped here from now on.
  void allow(CardSet cards, void* at, std::size_t bytes);
  void remove_mappings(void* at, std::size_t bytes) {
    ranges_.erase(ranges_.lower_bound(address(at)), ranges_.lower_bound(address(at) + bytes));
  }

  void* allocate_pinned(int card, std::size_t bytes);
  bool release_pinned(void* at);
  bool is_pinned(const void* at) const;

  /// Opens the memory of these cards to the threads of this process, and closes that of others.
  void open(CardSet cards);
  CardSet opened() const { return opened_; }

  /// What was written past an allocation that is open, as text; empty when nothing was.
  std::string damage() const;
  void mend();  ///< forgets such damage

 private:
  struct Range {
    int card;
    CardSet cards;  ///< that may touch it
    std::size_t bytes;
    std::byte* mapped = nullptr;  ///< null: a mapping from elsewhere
    std::size_t mapped_bytes = 0;
  };
  struct Pinned {
    int card;
    std::size_t bytes;
  };

  static std::uintptr_t address(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }
  const std::pair<const std::uintptr_t, Range>* range_before(const void* at) const;
  bool is_open(const Range& range) const {
    return range.mapped != nullptr && (opened_ & only_card(range.card)) != 0;
  }
  /// Do ranges that adjoin cover all of it, and is each as the predicate says?
  template <typename Predicate>
  bool is_covered(const void* at, std::size_t bytes, Predicate predicate) const;

  std::map<std::uintptr_t, Range> ranges_;
  std::map<std::uintptr_t, Pinned> pinned_;
  CardSet opened_ = no_card;
  bool reserves_only_ = false;
};

DeviceMemory& device_memory();

}  // namespace emulator
