#include "kernels/cuda/stream.h"

#include <memory>

#include "kernels/cuda/check.h"

namespace hyb::kernels::cuda {

Stream::Stream() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  processors_ = properties.multiProcessorCount;
  can_start_early_ = properties.major >= 9;
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

Stream::~Stream() { cudaStreamDestroy(stream_); }

void Stream::wait() { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

Stream* make_stream(bool batch_invariant) {
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess) {
    throw Error(ErrorKind::usage, std::string("cuda: no card that can be used (") +
                                      cudaGetErrorString(error) +
                                      "); hyb doctor says more; or use --device cpu");
  }
  auto stream = std::make_unique<Stream>();
  stream->set_batch_invariant(batch_invariant);
  return stream.release();
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
