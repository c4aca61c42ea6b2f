#include "models/store.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <variant>

#include "core/base/error.h"
#include "core/base/log.h"
#include "kernels/arena/superblocks.h"
#include "kernels/ops/pack_snapshot.h"
#include "kernels/transfer.h"

namespace hyb::models {
namespace {

using kernels::MapMode;
using kernels::SuperblockMapOptions;
using kernels::Tensor;

constexpr std::size_t no_piece = static_cast<std::size_t>(-1);

SuperblockMapOptions options_for(const MemoryLayout& layout, SuperblockMapOptions options) {
  const bool fixed = !layout.fixed_superblocks.empty();
  require(fixed || options.mode != MapMode::flat, "store: mode flat has fixed superblocks");
  if (fixed) options.mode = MapMode::flat;
  return options;
}

std::size_t place(ViewId view) { return static_cast<std::size_t>(index(view)); }

/// Superblocks before a view's own, where they are fixed.
std::int32_t first_superblock(const MemoryLayout& layout, ViewId view) {
  if (layout.fixed_superblocks.empty()) return 0;
  const auto begin = layout.fixed_superblocks.begin();
  return std::accumulate(begin, begin + index(view), 0);
}

}  // namespace

std::unique_ptr<kernels::SuperblockMap> map_superblocks(kernels::Device device,
                                                        const StoreLayout& memory,
                                                        const SuperblockMapOptions& options) {
  return kernels::make_superblocks(device, memory.superblocks, options_for(memory.layout, options));
}

Store::Store(kernels::Queue& queue, const Geometry& geometry, const StoreLayout& memory,
             const SuperblockMapOptions& options,
             std::unique_ptr<kernels::SuperblockMap> superblocks)
    : queue_(queue),
      memory_(memory),
      state_dtype_(geometry.state_dtype),
      own_map_(superblocks ? std::move(superblocks)
                           : map_superblocks(queue.device(), memory, options)),
      map_(own_map_.get()),
      rows_(static_cast<std::size_t>(memory.layout.views())),
      groups_(geometry.pages.size(), no_piece),
      arenas_(geometry.pages.size()) {
  require(memory_.layers.size() == memory_.layout.groups.size(), "store: layers of each group");
  own_fixed();
  for (std::size_t group = 0; group < memory_.layers.size(); ++group) add_group(geometry, group);
  require(std::count(groups_.begin(), groups_.end(), no_piece) == 0,
          "store: every attention layer is in a group");
  add_slots(geometry);
  const SlotShape& packed = memory_.layout.packed;
  if (packed.per_superblock > 0) {
    require(memory_.snapshot.bytes > 0 && memory_.snapshot.bytes <= packed.bytes,
            "store: the packed snapshots are this model's");
    rows_[place(memory_.layout.packed_view())].push_back(
        rows(memory_.layout.packed_view(), 0, packed.bytes, memory_.snapshot.bytes));
  }
  add_rings(geometry);
}

Store::Store(kernels::Queue& queue, const Store& first)
    : queue_(queue),
      memory_(first.memory_),
      state_dtype_(first.state_dtype_),
      map_(first.map_),
      rows_(first.rows_),
      groups_(first.groups_),
      arenas_(first.arenas_),
      windows_(first.windows_),
      states_(first.states_),
      rings_(first.rings_) {
  require(queue.device() == first.queue_.device() && queue.card() == first.queue_.card(),
          "store: memory is shared on one device");
}

void Store::own_fixed() {
  std::int32_t superblock = 0;
  for (std::size_t view = 0; view < memory_.layout.fixed_superblocks.size(); ++view) {
    for (std::int32_t i = 0; i < memory_.layout.fixed_superblocks[view]; ++i) {
      map_->own(SuperblockId{superblock++}, ViewId{static_cast<std::int32_t>(view)});
    }
  }
}

Store::Rows Store::rows(ViewId view, std::size_t plane, std::size_t stride,
                        std::size_t bytes) const {
  const MemoryLayout& layout = memory_.layout;
  const std::size_t plane_bytes = memory_.superblocks.plane_bytes.at(place(view)).at(plane);
  const std::size_t used = static_cast<std::size_t>(layout.units_per_superblock(view)) * stride;
  require(used <= plane_bytes, "store: the units of a superblock fit into it");
  require(used == plane_bytes ||
              (!layout.fixed_superblocks.empty() && layout.fixed_superblocks[place(view)] <= 1),
          "store: units are spread evenly over superblocks");
  const auto before = static_cast<std::size_t>(first_superblock(layout, view));
  return {.first = map_->plane(view, plane) + before * (plane_bytes - used),
          .stride = stride,
          .bytes = bytes};
}

std::int32_t Store::units_end(ViewId view) const {
  const MemoryLayout& layout = memory_.layout;
  const std::int32_t superblocks =
      layout.fixed_superblocks.empty()
          ? layout.superblocks
          : first_superblock(layout, view) + layout.fixed_superblocks[place(view)];
  return superblocks * layout.units_per_superblock(view);
}

void Store::add_group(const Geometry& geometry, std::size_t group) {
  const ViewId view{static_cast<std::int32_t>(group)};
  const std::vector<std::size_t>& layers = memory_.layers[group];
  std::size_t page_bytes = 0;
  for (std::size_t plane = 0; plane < layers.size(); ++plane) {
    const PageLayout& page = geometry.pages.at(layers[plane]);
    require(groups_[layers[plane]] == no_piece, "store: an attention layer is in one group");
    const Rows& part =
        rows_[group].emplace_back(rows(view, plane, page.page_bytes, page.page_bytes));
    groups_[layers[plane]] = group;
    arenas_[layers[plane]] =
        Tensor(part.first, geometry.kv_dtype,
               {units_end(view), page.elements_per_token * geometry.page_tokens});
    page_bytes += page.page_bytes;
  }
  require(memory_.layout.groups[group].page_bytes == page_bytes,
          "store: the pages are this model's");
}

void Store::add_slots(const Geometry& geometry) {
  const ViewId view = memory_.layout.slot_view();
  const SlotShape& slots = memory_.layout.slots;
  if (slots.per_superblock == 0) {
    require(geometry.pieces.empty(), "store: a model with recurrent layers has slots");
    return;
  }
  require(slots.bytes >= geometry.slot_bytes && slots.bytes % slot_alignment == 0,
          "store: the slots are this model's");
  const Rows& all =
      rows_[place(view)].emplace_back(rows(view, 0, slots.bytes, geometry.slot_bytes));
  const auto piece_view = [&](std::size_t offset, Tensor shape) {
    shape.data = all.first + offset;
    shape.row_stride = static_cast<std::int64_t>(slots.bytes / size_of(shape.dtype));
    return shape;
  };
  const std::int32_t count = units_end(view);
  for (const SlotPiece& piece : geometry.pieces) {
    windows_.push_back(
        piece_view(piece.conv_offset, Tensor(nullptr, geometry.load.activation,
                                             {count, piece.conv_channels, piece.conv_width - 1})));
    states_.push_back(piece_view(
        piece.state_offset,
        Tensor(nullptr, geometry.state_dtype, {count, piece.heads, piece.rows, piece.columns})));
  }
}

void Store::add_rings(const Geometry& geometry) {
  const ViewId view = memory_.layout.ring_view();
  const SlotShape& rings = memory_.layout.rings;
  if (rings.per_superblock == 0) return;
  const RingLayout& ring = memory_.ring;
  require(ring.bytes > 0 && ring.bytes <= rings.bytes && rings.bytes % slot_alignment == 0 &&
              ring.offsets.size() == geometry.pieces.size(),
          "store: the rings are this model's");
  const Rows& all = rows_[place(view)].emplace_back(rows(view, 0, rings.bytes, ring.bytes));
  for (std::size_t i = 0; i < geometry.pieces.size(); ++i) {
    Tensor& part = rings_.emplace_back(
        all.first + ring.offsets[i], geometry.load.activation,
        std::initializer_list<std::int64_t>{units_end(view), memory_.layout.ring_tokens,
                                            geometry.pieces[i].ring_width});
    part.row_stride = static_cast<std::int64_t>(rings.bytes / size_of(part.dtype));
  }
}

void Store::carry_out(std::span<const Order> orders) {
  for (const Order& order : orders) {
    if (const auto* unit_copy = std::get_if<UnitCopy>(&order)) {
      copy(*unit_copy);
    } else if (const auto* pack_order = std::get_if<PackSlot>(&order)) {
      pack(*pack_order);
    } else if (const auto* unpack_order = std::get_if<UnpackSlot>(&order)) {
      unpack(*unpack_order);
    } else {
      require(std::holds_alternative<ChangeOwner>(order), "store: an order that moves bytes");
      change(std::get<ChangeOwner>(order));
    }
  }
}

void Store::copy(const UnitCopy& order) {
  for (const Rows& part : rows_.at(place(order.view))) {
    kernels::copy(queue_, part[order.to], part[order.from], part.bytes);
  }
}

Tensor Store::unit(ViewId view, std::int32_t unit) const {
  const Rows& units = rows_.at(place(view)).at(0);
  return Tensor(units[unit], DType::u8, {static_cast<std::int64_t>(units.bytes)});
}

void Store::pack(const PackSlot& order) {
  kernels::pack_snapshot(queue_, {.pieces = memory_.snapshot.pieces,
                                  .state_dtype = state_dtype_,
                                  .slot = unit(memory_.layout.slot_view(), index(order.from)),
                                  .packed = unit(memory_.layout.packed_view(), index(order.to))});
}

void Store::unpack(const UnpackSlot& order) {
  kernels::unpack_snapshot(queue_, {.pieces = memory_.snapshot.pieces,
                                    .state_dtype = state_dtype_,
                                    .packed = unit(memory_.layout.packed_view(), index(order.from)),
                                    .slot = unit(memory_.layout.slot_view(), index(order.to))});
}

void Store::change(const ChangeOwner& order) {
  // Work of earlier steps may still read what is unmapped.
  if (order.to == no_view || map_->own_needs_quiet()) kernels::wait(queue_);
  if (order.to != no_view) {
    map_->own(order.superblock, order.to);
    if (order.is_ahead) map_->prefault(order.superblock);
    return;
  }
  try {
    map_->give_back(order.superblock);
  } catch (const Error& error) {
    // Memory that stays here is no reason to fail a step.
    log::warning(error.what());
  }
}

template <typename Byte, typename Copy>
std::size_t Store::each_part(ViewId view, std::int32_t unit, std::span<Byte> bytes,
                             const Copy& copy) const {
  require(bytes.size() == memory_.layout.unit_bytes(view), "store: a unit is copied whole");
  std::size_t done = 0;
  for (const Rows& part : rows_.at(place(view))) {
    copy(part[unit], bytes.subspan(done, part.bytes));
    done += part.bytes;
  }
  return done;
}

template <typename Copy>
void Store::read_by(ViewId view, std::int32_t unit, std::span<std::byte> bytes,
                    const Copy& copy) const {
  const std::size_t done = each_part(view, unit, bytes, copy);
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(done), bytes.end(), std::byte{0});
}

void Store::read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) const {
  read_by(view, unit, bytes, [&](const std::byte* from, std::span<std::byte> to) {
    kernels::download(queue_, to, from);
  });
}

void Store::read_beside(ViewId view, std::int32_t unit, std::span<std::byte> bytes) const {
  read_by(view, unit, bytes, [](const std::byte* from, std::span<std::byte> to) {
    std::memcpy(to.data(), from, to.size());
  });
}

void Store::write_beside(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) const {
  each_part(view, unit, bytes, [](std::byte* to, std::span<const std::byte> from) {
    std::memcpy(to, from.data(), from.size());
  });
}

std::unique_ptr<PendingBytes> Store::start_read(kernels::SideCopies& copies, ViewId view,
                                                std::int32_t unit) const {
  std::vector<std::span<const std::byte>> bytes;
  for (std::size_t i = 0; i < parts(view); ++i) bytes.emplace_back(part(view, unit, i));
  return copies.start(bytes, memory_.layout.unit_bytes(view));
}

void Store::start_write(kernels::SideWrite& staged, ViewId view, std::int32_t unit) const {
  std::vector<std::span<std::byte>> bytes;
  for (std::size_t i = 0; i < parts(view); ++i) bytes.push_back(part(view, unit, i));
  staged.start(bytes);
}

std::size_t Store::parts(ViewId view) const { return rows_.at(place(view)).size(); }

std::span<std::byte> Store::part(ViewId view, std::int32_t unit, std::size_t part) const {
  const Rows& rows = rows_.at(place(view)).at(part);
  return {rows[unit], rows.bytes};
}

void Store::write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) const {
  each_part(view, unit, bytes, [&](std::byte* to, std::span<const std::byte> from) {
    kernels::upload(queue_, to, from);
  });
}

}  // namespace hyb::models
