#include "kernels/cuda/side_copies.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/staging.h"

namespace hyb::kernels::cuda {
namespace {

/// Ranges of a ring, mostly given back in the order in which they were taken. For any thread.
class Ring {
 public:
  explicit Ring(std::size_t bytes) : bytes_(bytes) {}

  /// Returns where a range of `bytes` bytes begins; empty: there is no room.
  std::optional<std::size_t> take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    std::size_t begin = ranges_.empty() ? 0 : ranges_.back().end, limit = bytes_;
    if (!ranges_.empty()) {
      const bool is_wrapped = ranges_.back().begin < ranges_.front().begin;
      if (is_wrapped) {
        limit = ranges_.front().begin;
      } else if (bytes > bytes_ - begin) {
        begin = 0;
        limit = ranges_.front().begin;
      }
    }
    if (bytes > limit - begin) return std::nullopt;
    ranges_.push_back({.begin = begin, .end = begin + bytes});
    return begin;
  }

  void give_back(std::size_t begin) {
    const std::lock_guard lock(mutex_);
    const auto range = std::find_if(ranges_.begin(), ranges_.end(),
                                    [&](const Range& one) { return one.begin == begin; });
    range->is_free = true;
    while (!ranges_.empty() && ranges_.front().is_free) ranges_.pop_front();
  }

 private:
  struct Range {
    std::size_t begin, end;
    bool is_free = false;
  };

  std::size_t bytes_;
  std::mutex mutex_;
  std::deque<Range> ranges_;
};

class RingCopies final : public SideCopies {
 public:
  RingCopies(Stream& stream, const SideCopyRoom& room)
      : stream_(stream),
        side_({.card = stream.card()}),
        back_({.card = stream.card()}),
        ring_(room.out),
        back_ring_(room.back),
        device_(make_device(room.out)),
        host_(make_pinned(room.out)),
        back_host_(make_pinned(room.back)) {}

  std::unique_ptr<PendingBytes> start(std::span<const std::span<const std::byte>> parts,
                                      std::size_t bytes) override {
    const std::optional<std::size_t> begin = ring_.take(std::max<std::size_t>(bytes, 1));
    if (!begin) return nullptr;
    auto copy = std::make_unique<Copy>(*this, *begin, bytes);
    copy->start(parts);
    return copy;
  }

  std::unique_ptr<SideWrite> stage_write(std::size_t bytes) override {
    const std::optional<std::size_t> begin = back_ring_.take(std::max<std::size_t>(bytes, 1));
    if (!begin) return nullptr;
    return std::make_unique<Write>(*this, *begin, bytes);
  }

 private:
  class Write final : public SideWrite {
   public:
    Write(RingCopies& owner, std::size_t begin, std::size_t bytes)
        : owner_(owner), begin_(begin), bytes_(bytes) {}

    ~Write() override {
      try {
        if (has_started_) written_.wait();
      } catch (const Error&) {
        // The card has failed: the next step says so.
      }
      owner_.back_ring_.give_back(begin_);
    }

    std::span<std::byte> room() override { return {owner_.back_host_.get() + begin_, bytes_}; }

    void start(std::span<const std::span<std::byte>> parts) override {
      require(!has_started_, "side copies: one starts once");
      has_started_ = true;
      before_.record(owner_.stream_);
      before_.hold(owner_.back_);
      std::span<const std::byte> bytes = room();
      for (const std::span<std::byte> part : parts) {
        check(cudaMemcpyAsync(part.data(), bytes.first(part.size()).data(), part.size(),
                              cudaMemcpyHostToDevice, owner_.back_.handle()),
              "cudaMemcpyAsync");
        bytes = bytes.subspan(part.size());
      }
      written_.record(owner_.back_);
    }

    bool is_done() override { return written_.is_done(); }
    void wait() override { written_.wait(); }

   private:
    RingCopies& owner_;
    std::size_t begin_, bytes_;
    bool has_started_ = false;
    Event before_, written_;
  };

  class Copy final : public PendingBytes {
   public:
    Copy(RingCopies& owner, std::size_t begin, std::size_t bytes)
        : owner_(owner), begin_(begin), bytes_(bytes) {}

    ~Copy() override {
      try {
        copied_.wait();  // until then neither side of the range is free
      } catch (const Error&) {
        // The card has failed: the next step says so.
      }
      owner_.ring_.give_back(begin_);
    }

    void start(std::span<const std::span<const std::byte>> parts) {
      std::byte* const aside = owner_.device_.get() + begin_;
      for (const std::span<const std::byte> part : parts) {
        copy(owner_.stream_, aside + copied_bytes_, part.data(), part.size());
        copied_bytes_ += part.size();
      }
      set_aside_.record(owner_.stream_);
      set_aside_.hold(owner_.side_);
      check(cudaMemcpyAsync(owner_.host_.get() + begin_, aside, copied_bytes_,
                            cudaMemcpyDeviceToHost, owner_.side_.handle()),
            "cudaMemcpyAsync");
      copied_.record(owner_.side_);
    }

    std::span<const std::byte> wait() override {
      copied_.wait();
      std::byte* const bytes = owner_.host_.get() + begin_;
      std::memset(bytes + copied_bytes_, 0, bytes_ - copied_bytes_);
      return {bytes, bytes_};
    }

   private:
    RingCopies& owner_;
    std::size_t begin_, bytes_;
    std::size_t copied_bytes_ = 0;
    Event set_aside_, copied_;
  };

  Stream& stream_;
  Stream side_, back_;
  Ring ring_, back_ring_;
  DeviceBytes device_;
  PinnedBytes host_, back_host_;
};

}  // namespace

std::unique_ptr<SideCopies> make_side_copies(Stream& stream, const SideCopyRoom& room) {
  return std::make_unique<RingCopies>(stream, room);
}

}  // namespace hyb::kernels::cuda
