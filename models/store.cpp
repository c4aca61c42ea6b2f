#include "models/store.h"

#include <cstring>
#include <variant>

#include "core/base/error.h"

namespace hyb::models {
namespace {

using kernels::Buffer;
using kernels::Tensor;

/// Piece of every slot as a tensor whose row stride is the slot's.
Tensor slot_view(std::byte* slots, std::size_t slot_bytes, std::size_t offset, Tensor shape) {
  shape.data = slots + offset;
  shape.row_stride = static_cast<std::int64_t>(slot_bytes / size_of(shape.dtype));
  return shape;
}

std::size_t page_bytes_of(const Tensor& arena) {
  return static_cast<std::size_t>(arena.dim(1)) * size_of(arena.dtype);
}

std::byte* page_of(const Tensor& arena, std::int32_t page) {
  return arena.as<std::byte>() + static_cast<std::size_t>(page) * page_bytes_of(arena);
}

/// Units of a view: those before its first one are not backed.
struct Units {
  Units(const MemoryLayout& layout, ViewId view) : first(layout.first_unit(view)) {
    const std::int32_t superblocks =
        layout.fixed_superblocks.empty()
            ? layout.superblocks
            : layout.fixed_superblocks[static_cast<std::size_t>(index(view))];
    end = first + superblocks * layout.units_per_superblock(view);
  }
  std::size_t count() const { return static_cast<std::size_t>(end - first); }
  std::int32_t first, end;
};

/// Where unit 0 would be.
std::byte* origin(const Buffer& buffer, const Units& units, std::size_t unit_bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
  return reinterpret_cast<std::byte*>(address - static_cast<std::size_t>(units.first) * unit_bytes);
}

}  // namespace

Store::Store(kernels::Device device, const Geometry& geometry, const MemoryLayout& layout)
    : layout_(layout) {
  require(layout.groups.size() == (geometry.page_bytes == 0 ? 0 : 1),
          "store: one group for all attention layers");
  require(geometry.page_bytes == 0 || layout.groups[0].page_bytes == geometry.page_bytes,
          "store: the pages are this model's");
  require(layout.slots.per_superblock == 0 || layout.slots.bytes == geometry.slot_bytes,
          "store: the slots are this model's");
  for (const PageLayout& page : geometry.pages) {
    const Units units(layout, ViewId{0});
    const std::int64_t elements = page.elements_per_token * geometry.page_tokens;
    const Buffer& arena = pages_.emplace_back(device, units.count() * page.page_bytes);
    arenas_.push_back(
        Tensor(origin(arena, units, page.page_bytes), geometry.kv_dtype, {units.end, elements}));
  }
  if (layout.slots.per_superblock == 0) {
    require(geometry.pieces.empty(), "store: a model with recurrent layers has slots");
    return;
  }
  const Units slots(layout, layout.slot_view());
  slots_ = Buffer(device, slots.count() * geometry.slot_bytes);
  std::byte* const first = origin(slots_, slots, geometry.slot_bytes);
  for (const SlotPiece& piece : geometry.pieces) {
    windows_.push_back(slot_view(first, geometry.slot_bytes, piece.conv_offset,
                                 Tensor(nullptr, geometry.activation_dtype,
                                        {slots.end, piece.conv_channels, piece.conv_width - 1})));
    states_.push_back(slot_view(first, geometry.slot_bytes, piece.state_offset,
                                Tensor(nullptr, geometry.state_dtype,
                                       {slots.end, piece.heads, piece.rows, piece.columns})));
  }
}

std::byte* Store::slot(std::int32_t slot) const {
  const Units units(layout_, layout_.slot_view());
  return origin(slots_, units, layout_.slots.bytes) +
         static_cast<std::size_t>(slot) * layout_.slots.bytes;
}

void Store::copy_page(PageId from, PageId to) const {
  for (const Tensor& arena : arenas_) {
    std::memcpy(page_of(arena, index(to)), page_of(arena, index(from)), page_bytes_of(arena));
  }
}

void Store::carry_out(std::span<const Order> orders) const {
  for (const Order& order : orders) {
    if (const auto* page = std::get_if<PageCopy>(&order)) {
      copy_page(page->from, page->to);
    } else if (const auto* copy = std::get_if<SlotCopy>(&order)) {
      std::memcpy(slot(index(copy->to)), slot(index(copy->from)), layout_.slots.bytes);
    } else {
      // Every view has bytes of its own here, so a change of owner moves none.
      require(std::holds_alternative<ChangeOwner>(order), "store: there are no packed snapshots");
    }
  }
}

void Store::read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) const {
  require(bytes.size() == layout_.unit_bytes(view), "store: a unit is read whole");
  if (view == layout_.slot_view()) {
    std::memcpy(bytes.data(), slot(unit), bytes.size());
    return;
  }
  std::byte* to = bytes.data();
  for (const Tensor& arena : arenas_) {
    std::memcpy(to, page_of(arena, unit), page_bytes_of(arena));
    to += page_bytes_of(arena);
  }
}

void Store::write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) const {
  require(bytes.size() == layout_.unit_bytes(view), "store: a unit is written whole");
  if (view == layout_.slot_view()) {
    std::memcpy(slot(unit), bytes.data(), bytes.size());
    return;
  }
  const std::byte* from = bytes.data();
  for (const Tensor& arena : arenas_) {
    std::memcpy(page_of(arena, unit), from, page_bytes_of(arena));
    from += page_bytes_of(arena);
  }
}

MemoryLayout flat_memory(const Geometry& geometry, std::int32_t pages, std::int32_t slots) {
  return flat_layout({.pages = geometry.page_bytes == 0 ? 0 : pages,
                      .slots = geometry.slot_bytes == 0 ? 0 : slots,
                      .page_tokens = geometry.page_tokens,
                      .page_bytes = geometry.page_bytes,
                      .slot_bytes = geometry.slot_bytes});
}

}  // namespace hyb::models
