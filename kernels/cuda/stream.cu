#include "kernels/cuda/stream.h"

#include "kernels/cuda/driver.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/staging.h"
#include "kernels/launch_tuning.h"
#include "kernels/linear/library_products.h"
#include "kernels/ops/sampler.h"

namespace hyb::kernels::cuda {

Event::Event() {
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

Event::Event(int card) {
  use_card(card);
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

Event::~Event() { cudaEventDestroy(event_); }

void Event::record(Stream& stream) {
  check(cudaEventRecord(event_, stream.handle()), "cudaEventRecord");
}

void Event::wait() const { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

bool Event::is_done() const {
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) return false;
  check(state, "cudaEventQuery");
  return true;
}

void Event::hold(Stream& stream) const {
  check(cudaStreamWaitEvent(stream.handle(), event_, 0), "cudaStreamWaitEvent");
}

Stream::Stream(const StreamOptions& options)
    : card_(options.card), batch_invariant_(options.batch_invariant) {
  const Card own = kernels::cuda::card(card_);
  processors_ = own.processors;
  shared_bytes_max_ = own.shared_bytes_max;
  can_start_early_ = own.major >= 9 && launch_tuning().early_starts;
  carveout_ = launch_tuning().carveout;
  use_card(card_);
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                     options.is_urgent ? greatest : least),
        "cudaStreamCreateWithPriority");
}

Bounce& Stream::bounce() {
  if (!bounce_) bounce_ = std::make_unique<Bounce>();
  return *bounce_;
}

void Stream::drop_bounce() {
  wait();
  bounce_.reset();
}

Sampler& Stream::sampler() {
  if (!sampler_) sampler_ = std::make_unique<Sampler>(*this, 1);
  return *sampler_;
}

void Stream::reserve_ordered(std::size_t bytes) {
  if (bytes > ordered().bytes()) ordered_.emplace_back(Device::cuda, bytes);
}

Stream::~Stream() { cudaStreamDestroy(stream_); }

void Stream::use(std::unique_ptr<LibraryProducts> products, std::string text) {
  products_ = std::move(products);
  products_text_ = std::move(text);
}

bool Stream::is_done() const { return cudaStreamQuery(stream_) != cudaErrorNotReady; }

void Stream::wait() { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

namespace {

/// A library that is missing or does not start is no error: the kernels here do without it.
void open_library(Stream& stream) {
  const CublasLt library = matrix_library();
  if (!library.is_there()) return stream.use(nullptr, library.text);
  try {
    Buffer workspace(Device::cuda, LibraryProducts::workspace_bytes_usual);
    stream.use(std::make_unique<LibraryProducts>(*library.table, std::move(workspace)),
               library.text);
  } catch (const Error& error) {
    stream.use(nullptr, library.text + ": " + error.what());
  }
}

}  // namespace

Stream* make_stream(const StreamOptions& options) {
  auto stream = std::make_unique<Stream>(options);
  if (!options.batch_invariant) open_library(*stream);
  return stream.release();
}

std::size_t stream_bytes(bool batch_invariant) {
  if (batch_invariant || !matrix_library().is_there()) return 0;
  return LibraryProducts::workspace_bytes_usual;
}

void delete_stream(Stream* stream) { delete stream; }

Graph::Graph(Stream& stream, const std::function<void()>& body) {
  check(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    body();
  } catch (...) {
    if (cudaStreamEndCapture(stream.handle(), &graph) == cudaSuccess) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream.handle(), &graph), "cudaStreamEndCapture");
  const cudaError_t error = cudaGraphInstantiate(&executable_, graph, 0);
  cudaGraphDestroy(graph);
  check(error, "cudaGraphInstantiate");
}

Graph::~Graph() { cudaGraphExecDestroy(executable_); }

void Graph::replay(Stream& stream) const {
  check(cudaGraphLaunch(executable_, stream.handle()), "cudaGraphLaunch");
}

}  // namespace hyb::kernels::cuda
