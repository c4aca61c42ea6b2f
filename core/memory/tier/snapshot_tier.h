#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/io/transfer_queue.h"
#include "core/memory/pool/memory_pool.h"
#include "core/memory/prefix/prefill_cost.h"
#include "core/memory/prefix/prefix_tree.h"
#include "core/memory/prefix/snapshot_io.h"
#include "core/memory/tier/tier_index.h"

namespace hyb {

enum class FetchId : std::int64_t {};

enum class FetchEnd : std::uint8_t {
  adopted,  ///< it is in the prefix tree
  lost,     ///< it is not, and asking again does not help
  damaged   ///< its bytes were; there may be a shorter one
};

/// A snapshot that is being fetched from a tier. Where units are written beside steps its
/// room in the pool is reserved when all that there are buffers for has been read, and held until
/// all units are there; else nothing of the pool is held for it.
struct TierFetch {
  /// A page or slot that is being read, or is on its way to the pool.
  struct Unit {
    ViewId view;
    std::int32_t page;   ///< of the sequence, for a view of pages; else 0
    TransferId written;  ///< what stored it
    TransferId transfer;
    std::unique_ptr<StagedWrite> staged{};  ///< what it is read into; null: a queue's buffer
    std::int32_t target = -1;               ///< the unit of the room that it is copied to
  };

  FetchId id{};
  std::vector<TokenId> key;
  Precision precision = Precision::exact;
  SnapshotPlace place = SnapshotPlace::branch;

  bool writes_beside = false;  ///< units are written beside steps
  /// The units are written to this, which outlives them.
  std::unique_ptr<PinnedCheckpoint> room = nullptr;
  std::vector<CheckpointUnit> rest{};  ///< units of the room that are to be read yet
  std::vector<Unit> units{};           ///< in the order in which they arrive, and are copied
  std::size_t units_come = 0;          ///< number that has arrived
  std::size_t units_started = 0;       ///< of these, number on its way to the pool
  std::optional<FetchEnd> end{};       ///< set: how it ends
};

struct TierOptions {
  TierLimits limits;
  /// Memory for writes that are queued, and the same again for reads; where a page or state is
  /// larger than two thirds of it, one and a half times the largest.
  std::size_t staging_bytes = std::size_t{16} << 20;
  TransferWorker worker = TransferWorker::thread;
  /// Says whether a snapshot may be kept by copying it while steps wait. Else one that UnitBytes
  /// copies beside them, or none.
  bool may_wait = true;
  SnapshotSource source = SnapshotSource::disk;  ///< as reported in answers
};

struct TierStats {
  std::int64_t spilled = 0;   ///< snapshots that were handed to the storage
  std::int64_t held = 0;      ///< evicted ones that the tier had already
  std::int64_t declined = 0;  ///< not worth their bytes, or their bytes are not made yet
  std::int64_t late = 0;      ///< snapshots that no copy beside the steps had room for, lost copies
  std::int64_t fetched = 0, tokens_fetched = 0;
  std::int64_t dropped = 0;  ///< fetches that were not needed any more
  std::int64_t removed = 0;  ///< evicted from the tier for others
  std::int64_t damaged = 0;  ///< pages and slots that were read with other bytes: dropped
  std::uint64_t bytes_written = 0, bytes_read = 0;  ///< queued for the storage, requested from it
  std::uint64_t bytes_used = 0;                     ///< of the storage, now
};

/// Says what asking a tier came to: `fetch` has started; or there is nothing; or (is_full) nothing
/// can be started before other fetches have ended.
struct TierAnswer {
  std::optional<FetchId> fetch;
  bool is_full = false;
};

/// Keeps snapshots with their keys and values outside the pool: written when the prefix tree evicts
/// them, fetched when a prompt starts with their tokens. Pages that several of them share are
/// stored once. The storage makes it a disk tier or a host tier.
///
/// The storage is used from its own thread: bytes are copied between the pool and staging buffers,
/// so nothing of the pool is held for a transfer but what is written beside steps. The index treats
/// queued writes as done.
///
/// A storage that fails switches the tier off, with one warning; nothing but the tier is lost.
/// Bytes that are read with another checksum cost one snapshot.
class SnapshotTier {
 public:
  /// `name` is for messages, such as "disk tier".
  SnapshotTier(std::string name, const SnapshotIo& snapshot_io, std::unique_ptr<Storage> storage,
               const TierOptions& options);

  /// Keeps a snapshot that is about to be evicted; waits for the storage only when all staging
  /// buffers are in use, and never where options say so. Never runs a step: a snapshot whose bytes
  /// are still to be made by an order is not kept.
  void spill(std::span<const TokenId> key, const Snapshot& snapshot);

  /// Starts fetching the deepest snapshot that the prompt starts with and that leaves at least one
  /// token of it, when that is deeper than `resumable` tokens and faster than computing it. A fetch
  /// that is running already is returned again.
  TierAnswer ask(std::span<const TokenId> prompt, std::int32_t resumable);

  /// Leading tokens of the prompt that a snapshot in the tier has too, in whole pages.
  std::int32_t known(std::span<const TokenId> prompt) const {
    return index_ ? index_->known(prompt) : 0;
  }

  std::size_t pending() const { return fetches_.size(); }  ///< fetches that have not ended yet
  /// The fetch has not ended yet. All end when the tier is switched off.
  bool is_pending(FetchId fetch) const;
  /// Between steps: goes on with the fetch as far as that takes no waiting. True: deliver() will
  /// not wait, except for what did not fit into the staging buffers without such copies. Room for
  /// units is made as deliver() makes it, and what that throws ends the fetch.
  bool advance(FetchId fetch);
  /// Puts what was fetched into the prefix tree; others may be evicted for it. Between steps;
  /// waits. Throws what carrying out orders throws. The fetch ends either way.
  FetchEnd deliver(FetchId fetch);
  /// The fetch is not needed any more.
  void drop(FetchId fetch);
  /// After a failed step: drops fetches that hold memory of the pool, whose shared pages may be
  /// lost.
  void drop_arriving();
  /// The memory of the pool that fetches hold.
  std::vector<const Checkpoint*> arriving() const;
  /// Waits until some running transfer is done, or else a copy beside steps.
  void wait();
  /// Waits until no transfer is running.
  void drain();
  /// Carries out up to `count` transfers, with TransferWorker::caller.
  void run_transfers(std::size_t count);

  /// Asks, waits and delivers. Returns the length of the snapshot that is in the prefix tree then;
  /// 0: none.
  std::int32_t fetch(std::span<const TokenId> prompt, std::int32_t resumable);

  /// From now on prefill costs this.
  void set_cost(const PrefillCost& cost) {
    if (index_) index_->set_cost(cost);
  }

  const std::string& name() const { return name_; }
  bool is_on() const { return queue_ != nullptr; }
  TierStats stats() const;
  /// Memory of the index; an estimate.
  std::size_t index_bytes() const { return index_ ? index_->bytes() : 0; }
  std::size_t staging_bytes() const { return queue_ ? queue_->bytes_held() : 0; }
  void audit() const;

 private:
  /// A fetch taken off the list; its buffers are released in any case.
  struct Taken {
    SnapshotTier* tier;
    TierFetch fetch;
    ~Taken() { tier->release(fetch); }
  };

  bool store(StoredUnit& unit, const CheckpointUnit& source);
  void start(TierFetch& fetch, std::span<StoredUnit* const> units);
  bool read(TierFetch& fetch, const StoredUnit& unit);
  void release(const TierFetch& fetch);
  std::vector<StoredUnit*> units_now(const TierFetch& fetch) const;
  bool is_whole(const TierFetch& fetch) const;
  bool have_all_come(TierFetch& fetch) const;
  bool write_beside(TierFetch& fetch);
  bool end_as_damaged(TierFetch& fetch);
  bool reserve(TierFetch& fetch);
  bool read_rest(TierFetch& fetch);
  FetchEnd adopt(const TierFetch& fetch, Checkpoint checkpoint);
  void forget_damaged(const TierFetch& fetch);
  bool fill(TierFetch& fetch, const Reservation& room);
  bool fill_rest(TierFetch& fetch, std::span<const CheckpointUnit> rest);
  void notice_failure();
  void switch_off(std::string_view why);

  std::string name_;
  SnapshotIo snapshot_io_;
  TierOptions options_;
  std::optional<TierIndex> index_;
  std::vector<TierFetch> fetches_;  ///< in the order of the requests
  std::int64_t asked_ = 0;
  TierStats stats_;
  std::unique_ptr<TransferQueue> queue_;  ///< null: switched off
};

}  // namespace hyb
