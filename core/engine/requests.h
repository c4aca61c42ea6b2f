#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/chunk_pace.h"
#include "core/engine/request.h"
#include "core/engine/sequence.h"

namespace hyb {

class TraceRecorder;

/// The requests that have not ended: their sequences, and what their sinks have yet to receive.
class Requests {
 public:
  /// Makes the request's sequences. `terms` has all but id and stop strings. The sink outlives the
  /// request.
  RequestId add(RequestTerms terms, Sink& sink);

  /// The choices that have not ended; none: the request has.
  std::vector<Sequence*> choices(RequestId request) const;

  /// Its sink is to receive this.
  void add_text(const Sequence& sequence, std::string text);
  /// The sequence has ended with this, and is destroyed.
  void end(const Sequence& sequence, Completion completion);

  /// Paces requests with a chunk_time: chunks are as long as that from now on.
  void set_chunks(const ChunkPace& pace);

  /// Sequences have at most this many tokens from now on. Returns those that are longer.
  std::vector<Sequence*> limit(std::int32_t length_max);

  /// Calls sinks until they have everything, in the order in which it came about. A sink may add to
  /// that, call this, which then does nothing, or throw: what it throws at counts as delivered.
  void deliver();
  bool has_events() const { return !events_.empty(); }
  bool in_delivery() const { return in_delivery_; }
  /// No request is unfinished, no event undelivered.
  bool idle() const { return unfinished_ == 0 && events_.empty(); }
  std::int32_t unfinished() const { return unfinished_; }  ///< sequences

  /// From now on every request is recorded (null: no more).
  void record(TraceRecorder* recorder) { recorder_ = recorder; }

  /// Throws on a bug of ours. Returns how many sequences wait for a snapshot from elsewhere.
  std::size_t audit() const;

 private:
  struct Active {
    RequestTerms terms;
    Sink* sink = nullptr;
    std::vector<std::unique_ptr<Sequence>> choices;  ///< null: ended
    std::size_t unfinished = 0;
  };
  struct Event {
    Sink* sink;
    ArrivalOrder sequence;
    std::string text;
    std::optional<Completion> completion;  ///< empty: it is a text
  };

  std::map<RequestId, Active> active_;
  std::deque<Event> events_;
  bool in_delivery_ = false;
  TraceRecorder* recorder_ = nullptr;
  std::int64_t added_ = 0;
  std::int32_t unfinished_ = 0;
};

}  // namespace hyb
