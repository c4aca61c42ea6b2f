#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "tests/cuda_emulator/card.h"
#include "tests/cuda_emulator/device/device_memory.h"
#include "tests/cuda_emulator/device/schedule.h"
#include "tests/cuda_emulator/device/worker.h"
#include "tests/cuda_emulator/emulator.h"

namespace emulator {

/// A moment in a stream: `position` operations of it are done.
struct Moment {
  std::uint64_t stream = 0, position = 0;
};
struct Record {
  std::uint64_t event = 0;
};
/// A copy or a fill, while the memory of these cards is open.
struct Transfer {
  CardSet cards;
  std::function<void()> body;
};
using Operation = std::variant<Launch, Transfer, Moment, Record>;

}  // namespace emulator

struct CUstream_st {
  std::uint64_t number = 0;
  int card = 0;
  int priority = 0;
  bool is_blocking = false;  ///< waits for, and is waited for by, calls that name no stream
  std::deque<emulator::Operation> waiting;
  std::uint64_t done = 0;  ///< operations so far
  CUgraph_st* captured_by = nullptr;

  std::uint64_t end() const { return done + waiting.size(); }
};

struct CUevent_st {
  std::uint64_t number = 0;
  int card = 0;
  emulator::Moment moment;
  CUgraph_st* captured_by = nullptr;
  std::chrono::steady_clock::time_point time;
};

struct CUgraph_st {
  std::vector<emulator::Operation> operations;
  std::uint64_t origin = 0;  ///< the stream whose capture it is
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;  ///< that began the capture
  bool is_invalid = false;
};

struct CUgraphExec_st {
  int card = 0;  ///< that was current when it was made
  std::vector<emulator::Operation> operations;
};

namespace emulator {

/// The card of calls that name none, of each of the host's threads: cudaSetDevice's.
inline thread_local int current_card = 0;

/// Kernels of this thread may go into the stream: it exists and is the current card's.
inline bool is_launchable(cudaStream_t stream) {
  return stream != nullptr && stream->card == current_card;
}

/// The cards: their streams, and the enqueued work that is not done yet. Operations are done only
/// when the host waits, as late as a card may do them: a read of a result before that sees the old
/// bytes, and an argument that is overwritten before that is used with the new ones. What is made
/// belongs to the current card. A fault ends the work of all cards.
class Machine {
 public:
  Machine();

  bool has_card(int card) const { return card >= 0 && card < cards; }

  cudaStream_t make_stream(bool is_blocking, int priority);
  cudaError_t end_stream(cudaStream_t stream);
  cudaEvent_t make_event();
  void end_event(cudaEvent_t event) { events_.erase(event->number); }

  /// The stream, or the current card's legacy one for null. Null when there is no such stream.
  cudaStream_t find(cudaStream_t stream);
  bool knows(cudaEvent_t event) const;

  /// Queues an operation, or writes it down in the graph that captures the stream.
  void add(cudaStream_t stream, Operation operation);

  /// Does what is in the stream before the moment.
  void advance(const Moment& moment);
  void advance(cudaStream_t stream) { advance({stream->number, stream->end()}); }
  /// The same, because the host waits for it.
  void wait_for(const Moment& moment);
  void advance_card(int card);
  void advance_all();
  /// What a call that names no stream waits for, of the current card.
  void advance_blocking();
  bool is_done(const Moment& moment) const;
  /// A call that waits, allocates or frees is no part of a graph: it ends the captures of this
  /// thread, and those of others that are global. False: there are none.
  bool break_captures();
  void end_capture(const CUgraph_st* graph);

  void record(RecordedWork work) {
    if (keeps_records) records.push_back(std::move(work));
  }

  /// What goes wrong from now on in `error()`, until reset().
  cudaError_t error() const;
  cudaError_t note(cudaError_t error);  ///< for cudaGetLastError
  cudaError_t last_error(bool forget);
  void reset();

  Schedule schedule;
  HostCalls calls;
  int cards = 1;
  bool peer_access = true;
  /// By card and kernel, where it was set.
  std::map<std::pair<int, const void*>, int> shared_bytes_max;
  std::map<const void*, int> carveouts;  ///< in percent, where they were set
  int ptx_version = 90;
  std::size_t block_shared_bytes = SharedMemory::bytes_max;  ///< that a kernel may opt in to
  unsigned registers = 65536;                                ///< of a multiprocessor
  std::int64_t blocks_run = 0;
  bool is_recording_only = false, keeps_records = false;
  std::vector<RecordedWork> records;
  std::recursive_mutex mutex;

 private:
  void do_front(CUstream_st& stream, std::uint64_t position);
  void run_launches(CUstream_st& stream, std::uint64_t position);

  std::map<std::uint64_t, std::unique_ptr<CUstream_st>> streams_;
  std::map<std::uint64_t, std::unique_ptr<CUevent_st>> events_;
  std::uint64_t last_number_ = 0;
  Launcher launcher_;
  int advancing_ = 0;
  cudaError_t last_error_ = cudaSuccess;
};

Machine& machine();

}  // namespace emulator
