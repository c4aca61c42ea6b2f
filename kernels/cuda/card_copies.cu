#include "kernels/cuda/card_copies.h"

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/staging.h"

namespace hyb::kernels::cuda {
namespace {

class Pending final : public PendingCardCopies {
 public:
  explicit Pending(Stream& last) : done_(last.card()) { done_.record(last); }
  ~Pending() override {
    try {
      done_.wait();
    } catch (const Error&) {
      // The card has failed: the next step says so.
    }
  }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  bool is_done() override {
    try {
      return done_.is_done();
    } catch (const Error&) {
      return true;
    }
  }
  void wait() override { done_.wait(); }

 private:
  Event done_;
};

/// Holds what has been enqueued in both queues, for copies to wait for.
class PriorWork {
 public:
  PriorWork(Stream& from, Stream& to)
      : from_(from), to_(to), read_(from.card()), written_(to.card()) {}

  /// Makes later work of the stream wait for the work that both have been given.
  void hold(Stream& stream) {
    read_.record(from_);
    written_.record(to_);
    read_.hold(stream);
    written_.hold(stream);
  }

 private:
  Stream &from_, &to_;
  Event read_, written_;
};

/// Returns what `enqueue` makes. When it throws, what it had enqueued in the streams has ended.
std::unique_ptr<PendingCardCopies> all_or_none(
    std::initializer_list<Stream*> streams,
    const std::function<std::unique_ptr<PendingCardCopies>()>& enqueue) {
  try {
    return enqueue();
  } catch (const Error&) {
    for (Stream* const stream : streams) cudaStreamSynchronize(stream->handle());
    throw;
  }
}

class PeerCopies final : public CardCopies {
 public:
  PeerCopies(Stream& from, Stream& to)
      : prior_(from, to), from_(from.card()), to_(to.card()), stream_({.card = from.card()}) {}

  std::unique_ptr<PendingCardCopies> start(std::span<const CardCopy> copies) override {
    prior_.hold(stream_);
    return all_or_none({&stream_}, [&] {
      for (const CardCopy& copy : copies) {
        check(cudaMemcpyPeerAsync(copy.to, to_, copy.from.data(), from_, copy.from.size(),
                                  stream_.handle()),
              "cudaMemcpyPeerAsync");
      }
      return std::make_unique<Pending>(stream_);
    });
  }

 private:
  PriorWork prior_;
  int from_, to_;
  Stream stream_;
};

/// Through two pieces of pinned memory: one is filled while the other is emptied.
class StagedCopies final : public CardCopies {
 public:
  StagedCopies(Stream& from, Stream& to)
      : prior_(from, to),
        out_({.card = from.card()}),
        in_({.card = to.card()}),
        pieces_{Piece(from, to), Piece(from, to)} {}

  std::unique_ptr<PendingCardCopies> start(std::span<const CardCopy> copies) override {
    prior_.hold(out_);
    return all_or_none({&out_, &in_}, [&] {
      std::size_t done = 0;  // bytes of the first copy
      while (!copies.empty()) send_piece(copies, done);
      return std::make_unique<Pending>(in_);
    });
  }

 private:
  static constexpr std::size_t piece_bytes = card_copies_pinned_bytes / 2;

  struct Piece {
    Piece(const Stream& from, const Stream& to) : filled(from.card()), emptied(to.card()) {}

    PinnedBytes bytes = make_pinned(piece_bytes);
    Event filled, emptied;
  };

  /// Sends as much as a piece has room for; drops from `copies` what is on its way as a whole.
  void send_piece(std::span<const CardCopy>& copies, std::size_t& done) {
    Piece& piece = pieces_[turn_];
    turn_ = 1 - turn_;
    piece.emptied.hold(out_);
    arrivals_.clear();
    std::size_t used = 0;
    while (!copies.empty() && used < piece_bytes) {
      const CardCopy& copy = copies.front();
      const std::size_t bytes = std::min(copy.from.size() - done, piece_bytes - used);
      check(cudaMemcpyAsync(piece.bytes.get() + used, copy.from.data() + done, bytes,
                            cudaMemcpyDeviceToHost, out_.handle()),
            "cudaMemcpyAsync");
      arrivals_.push_back({.from = {piece.bytes.get() + used, bytes}, .to = copy.to + done});
      used += bytes;
      done += bytes;
      if (done < copy.from.size()) break;
      copies = copies.subspan(1);
      done = 0;
    }
    piece.filled.record(out_);
    piece.filled.hold(in_);
    for (const CardCopy& copy : arrivals_) {
      check(cudaMemcpyAsync(copy.to, copy.from.data(), copy.from.size(), cudaMemcpyHostToDevice,
                            in_.handle()),
            "cudaMemcpyAsync");
    }
    piece.emptied.record(in_);
  }

  PriorWork prior_;
  Stream out_, in_;
  std::array<Piece, 2> pieces_;
  std::size_t turn_ = 0;
  std::vector<CardCopy> arrivals_;  ///< of one piece, from pinned memory
};

}  // namespace

std::unique_ptr<CardCopies> make_card_copies(Stream& from, Stream& to, bool are_peers) {
  if (are_peers) return std::make_unique<PeerCopies>(from, to);
  return std::make_unique<StagedCopies>(from, to);
}

}  // namespace hyb::kernels::cuda
