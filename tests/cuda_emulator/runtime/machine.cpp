#include "tests/cuda_emulator/runtime/machine.h"

#include <algorithm>
#include <utility>

#include "tests/cuda_emulator/device/device_memory.h"
#include "tests/cuda_emulator/device/fault.h"

namespace emulator {
namespace {

/// While operations are done: the device's memory is open, and bad accesses are faults.
class Opened {
 public:
  explicit Opened(int& depth) : depth_(depth) {
    if (depth_++ > 0) return;
    guard_ = std::make_unique<SignalGuard>();
    device_memory().open();
  }
  ~Opened() {
    if (--depth_ > 0) return;
    if (const std::string damage = device_memory().damage(); !damage.empty()) {
      fault_log().report(damage);
    }
    device_memory().close();
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  int& depth_;
  std::unique_ptr<SignalGuard> guard_;
};

}  // namespace

Machine::Machine() {
  streams_[0] = std::make_unique<CUstream_st>();
  streams_[0]->is_blocking = true;
}

cudaStream_t Machine::make_stream(bool is_blocking) {
  auto stream = std::make_unique<CUstream_st>();
  stream->number = ++last_number_;
  stream->is_blocking = is_blocking;
  return (streams_[stream->number] = std::move(stream)).get();
}

cudaError_t Machine::end_stream(cudaStream_t stream) {
  if (stream->captured_by != nullptr) return cudaErrorStreamCaptureUnsupported;
  advance(stream);
  streams_.erase(stream->number);
  return cudaSuccess;
}

cudaEvent_t Machine::make_event() {
  auto event = std::make_unique<CUevent_st>();
  event->number = ++last_number_;
  return (events_[event->number] = std::move(event)).get();
}

cudaStream_t Machine::find(cudaStream_t stream) {
  if (stream == nullptr) return streams_[0].get();
  const bool known = std::any_of(streams_.begin(), streams_.end(),
                                 [&](const auto& entry) { return entry.second.get() == stream; });
  return known ? stream : nullptr;
}

bool Machine::knows(cudaEvent_t event) const {
  return std::any_of(events_.begin(), events_.end(),
                     [&](const auto& entry) { return entry.second.get() == event; });
}

void Machine::add(cudaStream_t stream, Operation operation) {
  if (stream->captured_by != nullptr) {
    stream->captured_by->operations.push_back(std::move(operation));
  } else {
    stream->waiting.push_back(std::move(operation));
  }
}

bool Machine::is_done(const Moment& moment) const {
  const auto found = streams_.find(moment.stream);
  return found == streams_.end() || found->second->done >= moment.position;
}

void Machine::advance(const Moment& moment) {
  const Opened opened(advancing_);
  const auto found = streams_.find(moment.stream);
  while (!is_done(moment)) do_front(*found->second, moment.position);
}

void Machine::wait_for(const Moment& moment) {
  ++calls.waits;
  if (!is_done(moment)) ++calls.waits_for_work;
  advance(moment);
}

void Machine::advance_all() {
  for (const auto& [number, stream] : streams_) advance(stream.get());
}

void Machine::advance_blocking() {
  for (const auto& [number, stream] : streams_) {
    if (stream->is_blocking) advance(stream.get());
  }
}

void Machine::do_front(CUstream_st& stream, std::uint64_t position) {
  if (std::holds_alternative<Launch>(stream.waiting.front())) {
    return run_launches(stream, position);
  }
  const Operation operation = std::move(stream.waiting.front());
  stream.waiting.pop_front();
  if (const auto* const action = std::get_if<HostAction>(&operation)) {
    if (!fault_log().has_fault()) (*action)();
  } else if (const auto* const moment = std::get_if<Moment>(&operation)) {
    advance(*moment);
  } else if (const auto event = events_.find(std::get<Record>(operation).event);
             event != events_.end()) {
    event->second->time = std::chrono::steady_clock::now();
  }
  ++stream.done;
}

void Machine::run_launches(CUstream_st& stream, std::uint64_t position) {
  std::vector<std::unique_ptr<Grid>> grids;
  while (stream.done + grids.size() < position && !stream.waiting.empty() &&
         std::holds_alternative<Launch>(stream.waiting.front())) {
    grids.push_back(std::make_unique<Grid>(std::get<Launch>(stream.waiting.front())));
    blocks_run += grids.back()->block_count();
    stream.waiting.pop_front();
  }
  if (!fault_log().has_fault()) launcher_.run(schedule, grids);
  stream.done += grids.size();
}

bool Machine::any_capture() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const auto& entry) { return entry.second->captured_by != nullptr; });
}

void Machine::invalidate_captures() {
  for (const auto& [number, stream] : streams_) {
    if (stream->captured_by != nullptr) stream->captured_by->is_invalid = true;
  }
}

void Machine::end_capture(const CUgraph_st* graph) {
  for (const auto& [number, stream] : streams_) {
    if (stream->captured_by == graph) stream->captured_by = nullptr;
  }
  for (const auto& [number, event] : events_) {
    if (event->captured_by == graph) event->captured_by = nullptr;
  }
}

cudaError_t Machine::error() const {
  return fault_log().has_fault() ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t Machine::note(cudaError_t error) {
  if (error == cudaSuccess) error = this->error();
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error_ = error;
  return error;
}

cudaError_t Machine::last_error(bool forget) {
  const cudaError_t error = std::exchange(last_error_, forget ? cudaSuccess : last_error_);
  return error == cudaSuccess ? this->error() : error;
}

void Machine::reset() {
  for (const auto& [number, stream] : streams_) {
    stream->done += stream->waiting.size();
    stream->waiting.clear();
  }
  fault_log().clear();
  device_memory().mend();
  last_error_ = cudaSuccess;
  schedule = {};
}

Machine& machine() {
  static Machine the_machine;
  return the_machine;
}

}  // namespace emulator
