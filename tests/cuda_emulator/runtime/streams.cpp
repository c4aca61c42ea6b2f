#include <cuda_runtime.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <variant>

#include "tests/cuda_emulator/runtime/machine.h"

using emulator::current_card;
using emulator::Holder;
using emulator::ledger;
using emulator::Machine;
using emulator::machine;

namespace {

constexpr int priority_least = 0, priority_greatest = -5;

/// What a graph takes of the card; how much is the emulator's guess.
template <typename Graph>
std::size_t bytes_of(const Graph& graph) {
  return 4096 * graph.operations.size();
}

/// Whether a recorded launch's shared memory is what its kernel may have now: no driver
/// promises to run it where that was lowered after the recording.
bool fits(const Machine& m, const emulator::Operation& operation) {
  const auto* const launch = std::get_if<emulator::Launch>(&operation);
  if (launch == nullptr) return true;
  const auto set = m.shared_bytes_max.find({launch->card, launch->kernel});
  return set == m.shared_bytes_max.end() ||
         launch->shared_bytes <= static_cast<std::size_t>(set->second);
}

/// What the runtime answers to a call on a stream that does not exist, or that may not be waited
/// for because a graph captures it. cudaSuccess: continue.
cudaError_t why_not_wait(cudaStream_t stream) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->captured_by == nullptr) return cudaSuccess;
  stream->captured_by->is_invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

}  // namespace

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaDeviceSynchronize() {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (m.break_captures()) return m.note(cudaErrorStreamCaptureUnsupported);
  m.advance_card(current_card);
  return m.note(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = priority_least;
  *greatest = priority_greatest;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, priority_least);
}

/// The schedule says what goes first, not the priority.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  *stream = m.make_stream(flags != cudaStreamNonBlocking,
                          std::clamp(priority, priority_greatest, priority_least));
  return m.note(cudaSuccess);
}

cudaError_t cudaStreamGetPriority(cudaStream_t name, int* priority) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const cudaStream_t stream = m.find(name);
  if (stream == nullptr) return m.note(cudaErrorInvalidResourceHandle);
  *priority = stream->priority;
  return m.note(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (stream == nullptr || m.find(stream) == nullptr) return m.note(cudaErrorInvalidResourceHandle);
  return m.note(m.end_stream(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t name) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const cudaStream_t stream = m.find(name);
  if (const cudaError_t error = why_not_wait(stream)) return m.note(error);
  m.wait_for({stream->number, stream->end()});
  return m.note(cudaSuccess);
}

/// A stream that still has work says so once, and does it: the next query finds it done.
cudaError_t cudaStreamQuery(cudaStream_t name) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const cudaStream_t stream = m.find(name);
  if (const cudaError_t error = why_not_wait(stream)) return m.note(error);
  if (stream->waiting.empty()) return m.note(cudaSuccess);
  m.advance(stream);
  return m.note(cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t name, cudaEvent_t event, unsigned) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const cudaStream_t stream = m.find(name);
  if (stream == nullptr || !m.knows(event)) return m.note(cudaErrorInvalidResourceHandle);
  if (event->captured_by != nullptr) {
    // Operations are in a graph in the order of their capture, which keeps every dependency.
    stream->captured_by = event->captured_by;
  } else if (stream->captured_by != nullptr) {
    return m.note(why_not_wait(stream));
  } else {
    m.add(stream, event->moment);
  }
  return m.note(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  *event = m.make_event();
  return m.note(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (!m.knows(event)) return m.note(cudaErrorInvalidResourceHandle);
  m.end_event(event);
  return m.note(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t name) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const cudaStream_t stream = m.find(name);
  if (stream == nullptr || !m.knows(event) || stream->card != event->card) {
    return m.note(cudaErrorInvalidResourceHandle);
  }
  event->captured_by = stream->captured_by;
  if (stream->captured_by != nullptr) return m.note(cudaSuccess);
  ++m.calls.events;
  m.add(stream, emulator::Record{event->number});
  event->moment = {.stream = stream->number, .position = stream->end()};
  return m.note(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (!m.knows(event)) return m.note(cudaErrorInvalidResourceHandle);
  if (event->captured_by != nullptr) return m.note(cudaErrorStreamCaptureUnsupported);
  m.wait_for(event->moment);
  return m.note(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (!m.knows(event)) return m.note(cudaErrorInvalidResourceHandle);
  if (event->captured_by != nullptr) return m.note(cudaErrorStreamCaptureUnsupported);
  if (m.is_done(event->moment)) return m.note(cudaSuccess);
  m.advance(event->moment);
  return m.note(cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (!m.knows(begin) || !m.knows(end) || begin->card != end->card) {
    return m.note(cudaErrorInvalidResourceHandle);
  }
  if (!m.is_done(begin->moment) || !m.is_done(end->moment)) return m.note(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return m.note(cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t name, cudaStreamCaptureMode mode) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const cudaStream_t stream = m.find(name);
  if (stream == nullptr) return m.note(cudaErrorInvalidResourceHandle);
  if (name == nullptr || stream->captured_by != nullptr) {
    return m.note(cudaErrorStreamCaptureUnsupported);
  }
  auto graph = std::make_unique<CUgraph_st>();
  graph->origin = stream->number;
  graph->mode = mode;
  graph->thread = std::this_thread::get_id();
  stream->captured_by = graph.release();
  return m.note(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  *graph = nullptr;
  if (stream == nullptr || m.find(stream) == nullptr || stream->captured_by == nullptr ||
      stream->captured_by->origin != stream->number) {
    return m.note(cudaErrorInvalidValue);
  }
  std::unique_ptr<CUgraph_st> captured(stream->captured_by);
  m.end_capture(captured.get());
  if (captured->is_invalid) return m.note(cudaErrorStreamCaptureInvalidated);
  *graph = captured.release();
  return m.note(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  const std::lock_guard lock(machine().mutex);
  *executable = nullptr;
  if (!ledger(current_card).take(Holder::graph, bytes_of(*graph))) {
    return machine().note(cudaErrorMemoryAllocation);
  }
  auto made = std::make_unique<CUgraphExec_st>();
  made->card = current_card;
  made->operations = graph->operations;
  *executable = made.release();
  return machine().note(cudaSuccess);
}

/// As strict as for a kernel: CUDA's guide does not say whether other cards' streams may be named.
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t name) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const cudaStream_t stream = m.find(name);
  if (!emulator::is_launchable(stream)) return m.note(cudaErrorInvalidResourceHandle);
  for (const emulator::Operation& operation : executable->operations) {
    if (!fits(m, operation)) return m.note(cudaErrorInvalidValue);
  }
  ++m.calls.graphs;
  for (const emulator::Operation& operation : executable->operations) m.add(stream, operation);
  return m.note(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::unique_ptr<CUgraph_st> ended(graph);
  return machine().note(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const std::lock_guard lock(machine().mutex);
  const std::unique_ptr<CUgraphExec_st> ended(executable);
  if (ended != nullptr) ledger(ended->card).give_back(Holder::graph, bytes_of(*ended));
  return machine().note(cudaSuccess);
}
