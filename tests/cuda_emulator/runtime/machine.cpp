#include "tests/cuda_emulator/runtime/machine.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "tests/cuda_emulator/device/fault.h"

namespace emulator {
namespace {

/// Of no cards: memory is closed.
void open_memory_of(CardSet cards) {
  if (device_memory().opened() == cards) return;
  if (const std::string damage = device_memory().damage(); !damage.empty()) {
    fault_log().report(damage);
  }
  device_memory().open(cards);
}

/// While operations are done: each opens the memory of its cards, and bad accesses are faults.
class Advancing {
 public:
  explicit Advancing(int& depth) : depth_(depth) {
    if (depth_++ == 0) guard_ = std::make_unique<SignalGuard>();
  }
  ~Advancing() {
    if (--depth_ == 0) open_memory_of(no_card);
  }
  Advancing(const Advancing&) = delete;
  Advancing& operator=(const Advancing&) = delete;

 private:
  int& depth_;
  std::unique_ptr<SignalGuard> guard_;
};

int cards_of_environment() {
  const char* const wanted = std::getenv("HYB_EMULATED_CARDS");
  return wanted == nullptr ? 1 : std::clamp(std::atoi(wanted), 1, cards_max);
}

}  // namespace

Machine::Machine() : cards(cards_of_environment()) {
  for (int card = 0; card < cards_max; ++card) {  // a legacy stream's number is its card's
    auto legacy = std::make_unique<CUstream_st>();
    legacy->number = static_cast<std::uint64_t>(card);
    legacy->card = card;
    legacy->is_blocking = true;
    streams_[legacy->number] = std::move(legacy);
  }
  last_number_ = cards_max - 1;
}

cudaStream_t Machine::make_stream(bool is_blocking, int priority) {
  auto stream = std::make_unique<CUstream_st>();
  stream->number = ++last_number_;
  stream->card = current_card;
  stream->priority = priority;
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
  event->card = current_card;
  return (events_[event->number] = std::move(event)).get();
}

cudaStream_t Machine::find(cudaStream_t stream) {
  if (stream == nullptr) return streams_[static_cast<std::uint64_t>(current_card)].get();
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
  const Advancing advancing(advancing_);
  const auto found = streams_.find(moment.stream);
  while (!is_done(moment)) do_front(*found->second, moment.position);
}

void Machine::wait_for(const Moment& moment) {
  ++calls.waits;
  if (!is_done(moment)) ++calls.waits_for_work;
  advance(moment);
}

void Machine::advance_card(int card) {
  for (const auto& [number, stream] : streams_) {
    if (stream->card == card) advance(stream.get());
  }
}

void Machine::advance_all() {
  for (const auto& [number, stream] : streams_) advance(stream.get());
}

void Machine::advance_blocking() {
  for (const auto& [number, stream] : streams_) {
    if (stream->card == current_card && stream->is_blocking) advance(stream.get());
  }
}

void Machine::do_front(CUstream_st& stream, std::uint64_t position) {
  if (std::holds_alternative<Launch>(stream.waiting.front())) {
    return run_launches(stream, position);
  }
  const Operation operation = std::move(stream.waiting.front());
  stream.waiting.pop_front();
  if (const auto* const transfer = std::get_if<Transfer>(&operation)) {
    open_memory_of(transfer->cards);
    if (!fault_log().has_fault()) transfer->body();
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
  const int card = std::get<Launch>(stream.waiting.front()).card;
  while (stream.done + grids.size() < position && !stream.waiting.empty()) {
    const auto* const launch = std::get_if<Launch>(&stream.waiting.front());
    if (launch == nullptr || launch->card != card) break;  // a graph's may be of several cards
    grids.push_back(std::make_unique<Grid>(*launch));
    blocks_run += grids.back()->block_count();
    stream.waiting.pop_front();
  }
  open_memory_of(only_card(card));
  if (!fault_log().has_fault()) launcher_.run(schedule, grids);
  stream.done += grids.size();
}

bool Machine::break_captures() {
  bool any = false;
  for (const auto& [number, stream] : streams_) {
    CUgraph_st* const graph = stream->captured_by;
    if (graph == nullptr || graph->mode == cudaStreamCaptureModeRelaxed) continue;
    const bool is_own = graph->thread == std::this_thread::get_id();
    if (!is_own && graph->mode == cudaStreamCaptureModeThreadLocal) continue;
    any = graph->is_invalid = true;
  }
  return any;
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

void set_cards(int count) {
  if (count < 1 || count > cards_max) {
    throw std::invalid_argument("emulator: from 1 to " + std::to_string(cards_max) +
                                " cards, not " + std::to_string(count));
  }
  const std::lock_guard lock(machine().mutex);
  machine().cards = count;
}

void set_peer_access(bool can) {
  const std::lock_guard lock(machine().mutex);
  machine().peer_access = can;
}

Machine& machine() {
  static Machine the_machine;
  return the_machine;
}

}  // namespace emulator
