#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <variant>
#include <vector>

#include "core/engine/runner.h"
#include "tests/support/held_copies.h"
#include "tests/support/held_writes.h"

namespace hyb::testing {

/// A Runner without a model that owns the bytes of superblocks, as a real one does: all views of a
/// superblock alias the same bytes, a change of owner overwrites them, and accessing a unit through
/// a view that does not own it is an error.
class ByteRunner final : public Runner {
 public:
  explicit ByteRunner(MemoryLayout layout)
      : layout_(std::move(layout)),
        bytes_(static_cast<std::size_t>(layout_.superblocks) * layout_.superblock_bytes),
        owners_(static_cast<std::size_t>(layout_.superblocks), no_view) {}

  Capacity capacity() const override {
    return {.memory = layout_, .step_tokens = 1, .sequences_max = 1, .vocab = 1};
  }

  StepResult run(const Step& step) override {
    ++steps;
    for (const Order& order : step.orders) std::visit([this](const auto& o) { obey(o); }, order);
    return {};
  }

  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override {
    const auto from = unit_bytes(view, unit);
    if (from.size() != bytes.size()) throw std::logic_error("a unit is read whole");
    std::copy(from.begin(), from.end(), bytes.begin());
    ++units_read;
  }
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override {
    const auto to = unit_bytes(view, unit);
    if (to.size() != bytes.size()) throw std::logic_error("a unit is written whole");
    std::copy(bytes.begin(), bytes.end(), to.begin());
    ++units_written;
  }

  std::unique_ptr<PendingBytes> start_read(ViewId view, std::int32_t unit) override {
    return copies.start(*this, view, unit, layout_.unit_bytes(view));
  }

  bool can_stage_writes() const override { return writes.room > 0; }
  std::unique_ptr<StagedWrite> stage_write(std::size_t bytes) override {
    return writes.take(*this, bytes);
  }

  HeldCopies copies;  ///< beside the steps; none by default
  HeldWrites writes;  ///< the way back; none by default

  std::span<std::byte> unit_bytes(ViewId view, std::int32_t unit) {
    const std::int32_t per_superblock = layout_.units_per_superblock(view);
    const auto superblock = static_cast<std::size_t>(unit / per_superblock);
    if (layout_.fixed_superblocks.empty() && owners_.at(superblock) != view) {
      throw std::logic_error("a unit is touched through its owner's view");
    }
    const std::size_t size = layout_.unit_bytes(view);
    const auto inside = static_cast<std::size_t>(unit % per_superblock) * size;
    return std::span(bytes_).subspan(superblock * layout_.superblock_bytes + inside, size);
  }

  std::int64_t steps = 0, units_read = 0, units_written = 0;

 private:
  void obey(const UnitCopy& order) {
    const auto from = unit_bytes(order.view, order.from);
    std::copy(from.begin(), from.end(), unit_bytes(order.view, order.to).begin());
  }
  void obey(const PackSlot& order) {
    const auto from = unit_bytes(layout_.slot_view(), index(order.from));
    const auto to = unit_bytes(layout_.packed_view(), index(order.to));
    std::copy_n(from.begin(), to.size(), to.begin());
  }
  void obey(const UnpackSlot& order) {
    const auto from = unit_bytes(layout_.packed_view(), index(order.from));
    std::copy(from.begin(), from.end(), unit_bytes(layout_.slot_view(), index(order.to)).begin());
  }
  void obey(const AdvanceSlot&) { throw std::logic_error("these sequences have no drafts"); }
  void obey(const ChangeOwner& order) {
    const auto superblock = static_cast<std::size_t>(index(order.superblock));
    owners_.at(superblock) = order.to;
    const auto first =
        bytes_.begin() + static_cast<std::ptrdiff_t>(superblock * layout_.superblock_bytes);
    std::fill_n(first, layout_.superblock_bytes, std::byte{0xEE});
  }

  MemoryLayout layout_;
  std::vector<std::byte> bytes_;
  std::vector<ViewId> owners_;
};

}  // namespace hyb::testing
