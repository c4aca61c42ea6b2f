#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>

namespace hyb {

/// Index of a piece of text in the vocabulary.
enum class TokenId : std::int32_t {};
/// Index of a page of keys and values, the same in every layer of its page group.
enum class PageId : std::int32_t {};
/// Index of a slot of recurrent state.
enum class SlotId : std::int32_t {};

/// Index of a ring of drafts' inputs to recurrent layers.
enum class RingId : std::int32_t {};
/// Index of a packed (int8) snapshot of recurrent state.
enum class PackedId : std::int32_t {};
/// Index of a superblock, the unit of physical memory that changes owners.
enum class SuperblockId : std::int32_t {};
/// Says how the owner of a superblock divides it: the page groups by their numbers, then slots,
/// then packed snapshots, then rings.
enum class ViewId : std::int32_t {};

/// In a page table: this page left the attention window and was freed.
inline constexpr PageId no_page{-1};
/// A superblock without an owner.
inline constexpr ViewId no_view{-1};
/// A checkpoint that is not packed.
inline constexpr PackedId no_packed{-1};
/// A sequence that has run no drafts, or has no recurrent layers.
inline constexpr RingId no_ring{-1};
/// The read slot of a sequence without history: its state is all zeros.
inline constexpr SlotId no_slot{-1};

template <typename Id>
concept IdType = std::is_enum_v<Id> && std::is_same_v<std::underlying_type_t<Id>, std::int32_t>;

template <IdType Id>
constexpr std::int32_t index(Id id) {
  return static_cast<std::int32_t>(id);
}

/// Length of the common prefix of two token sequences.
inline std::int32_t common_prefix(std::span<const TokenId> one, std::span<const TokenId> other) {
  const auto ends = std::mismatch(one.begin(), one.end(), other.begin(), other.end());
  return static_cast<std::int32_t>(ends.first - one.begin());
}

}  // namespace hyb
