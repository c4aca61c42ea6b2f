#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/memory/orders.h"

namespace hyb::testing {

/// Copies of units that go on beside steps, as a card's do. Outlives them.
class HeldCopies {
 public:
  std::int32_t room = 0;                     ///< copies at once; 0: the runner has no such copies
  std::function<void()> before_end = [] {};  ///< called on the thread that waits for one
  std::function<bool()> fails = [] { return false; };  ///< true: this one is lost
  bool reads_late = false;  ///< a bug: a copy reads its unit when it ends

  std::atomic<std::int32_t> under_way = 0;
  std::int64_t started = 0, refused = 0, lost = 0;

  std::unique_ptr<PendingBytes> start(UnitBytes& units, ViewId view, std::int32_t unit,
                                      std::size_t bytes) {
    if (room == 0) return nullptr;
    if (under_way >= room) {
      ++refused;
      return nullptr;
    }
    auto copy = std::make_unique<Copy>(*this, units, view, unit, bytes);
    ++started;
    return copy;
  }

 private:
  class Copy final : public PendingBytes {
   public:
    Copy(HeldCopies& owner, UnitBytes& units, ViewId view, std::int32_t unit, std::size_t bytes)
        : owner_(owner), units_(units), view_(view), unit_(unit), bytes_(bytes) {
      units_.read(view_, unit_, bytes_);
      ++owner_.under_way;
    }
    ~Copy() override { --owner_.under_way; }

    std::span<const std::byte> wait() override {
      owner_.before_end();
      if (owner_.fails()) {
        ++owner_.lost;
        throw Error(ErrorKind::runtime, "copy: lost, as planned");
      }
      if (owner_.reads_late) read_again();
      return bytes_;
    }

   private:
    void read_again() {
      try {
        units_.read(view_, unit_, bytes_);
      } catch (const std::exception&) {
        bytes_.assign(bytes_.size(), std::byte{0});  // the unit is another view's by now
      }
    }

    HeldCopies& owner_;
    UnitBytes& units_;
    ViewId view_;
    std::int32_t unit_;
    std::vector<std::byte> bytes_;
  };
};

}  // namespace hyb::testing
