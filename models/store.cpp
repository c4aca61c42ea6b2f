#include "models/store.h"

#include <cstring>
#include <variant>

namespace hyb::models {
namespace {

using kernels::Buffer;
using kernels::Tensor;

/// Piece of every slot as a tensor whose row stride is the slot's.
Tensor slot_view(const Buffer& slots, std::size_t slot_bytes, std::size_t offset, Tensor shape) {
  shape.data = slots.data() + offset;
  shape.row_stride = static_cast<std::int64_t>(slot_bytes / size_of(shape.dtype));
  return shape;
}

}  // namespace

Store::Store(kernels::Device device, const Geometry& geometry, std::int32_t pages,
             std::int32_t slots)
    : slot_bytes_(geometry.slot_bytes) {
  const auto page_count = static_cast<std::size_t>(pages);
  const auto slot_count = static_cast<std::size_t>(slots);
  if (geometry.page_bytes != 0) pages_ = Buffer(device, page_count * geometry.page_bytes);
  if (geometry.slot_bytes != 0) slots_ = Buffer(device, slot_count * geometry.slot_bytes);

  std::size_t offset = 0;
  for (const PageLayout& layout : geometry.pages) {
    const std::int64_t elements = layout.elements_per_token * geometry.page_tokens;
    arenas_.push_back(pages_.tensor(offset, geometry.kv_dtype, {pages, elements}));
    offset += page_count * layout.page_bytes;
  }
  for (const SlotPiece& piece : geometry.pieces) {
    windows_.push_back(slot_view(slots_, slot_bytes_, piece.conv_offset,
                                 Tensor(nullptr, geometry.activation_dtype,
                                        {slots, piece.conv_channels, piece.conv_width - 1})));
    states_.push_back(slot_view(
        slots_, slot_bytes_, piece.state_offset,
        Tensor(nullptr, geometry.state_dtype, {slots, piece.heads, piece.rows, piece.columns})));
  }
}

void Store::carry_out(std::span<const Order> orders) const {
  for (const Order& order : orders) {
    if (const auto* page = std::get_if<PageCopy>(&order)) {
      for (const Tensor& arena : arenas_) {
        const auto bytes = static_cast<std::size_t>(arena.dim(1)) * size_of(arena.dtype);
        auto* first = arena.as<std::byte>();
        std::memcpy(first + static_cast<std::size_t>(index(page->to)) * bytes,
                    first + static_cast<std::size_t>(index(page->from)) * bytes, bytes);
      }
    } else {
      const SlotCopy& slot = std::get<SlotCopy>(order);
      std::memcpy(slots_.data() + static_cast<std::size_t>(index(slot.to)) * slot_bytes_,
                  slots_.data() + static_cast<std::size_t>(index(slot.from)) * slot_bytes_,
                  slot_bytes_);
    }
  }
}

}  // namespace hyb::models
