#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/memory/orders.h"

namespace hyb::testing {

/// Units that are written beside steps, as a card's are. Outlives them.
class HeldWrites {
 public:
  std::int32_t room = 0;  ///< at once; 0: the runner has no such copies
  /// Called when a copy is looked at: true, it has ended.
  std::function<bool()> ends = [] { return true; };
  bool ends_too_early = false;  ///< a bug: a copy is said to have ended before its unit has it

  std::int32_t under_way = 0;
  std::int64_t started = 0, refused = 0;

  std::unique_ptr<StagedWrite> take(UnitBytes& units, std::size_t bytes) {
    if (taken_ >= room) {
      ++refused;
      return nullptr;
    }
    return std::make_unique<Held>(*this, units, bytes);
  }

 private:
  class Held final : public StagedWrite {
   public:
    Held(HeldWrites& owner, UnitBytes& units, std::size_t bytes)
        : owner_(owner), units_(units), bytes_(bytes) {
      ++owner_.taken_;
    }
    ~Held() override {
      if (is_under_way_) end();
      --owner_.taken_;
    }

    std::span<std::byte> room() override { return bytes_; }

    /// Until the end the unit has bytes that are no unit's.
    void start(ViewId view, std::int32_t unit) override {
      view_ = view;
      unit_ = unit;
      units_.write(view, unit, std::vector<std::byte>(bytes_.size(), std::byte{0xA5}));
      is_under_way_ = true;
      ++owner_.under_way;
      ++owner_.started;
    }
    bool is_done() override {
      if (owner_.ends_too_early) return true;
      if (is_under_way_ && owner_.ends()) end();
      return !is_under_way_;
    }
    void wait() override {
      if (is_under_way_) end();
    }

   private:
    void end() {
      is_under_way_ = false;
      --owner_.under_way;
      if (!owner_.ends_too_early) units_.write(view_, unit_, bytes_);
    }

    HeldWrites& owner_;
    UnitBytes& units_;
    std::vector<std::byte> bytes_;
    ViewId view_{};
    std::int32_t unit_ = -1;
    bool is_under_way_ = false;
  };

  std::int32_t taken_ = 0;
};

}  // namespace hyb::testing
