#include "kernels/cuda/event.h"

#include "kernels/cuda/check.h"
#include "kernels/cuda/stream.h"

namespace hyb::kernels::cuda {

Event::Event() {
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

Event::~Event() { cudaEventDestroy(event_); }

void Event::record(Stream& stream) {
  check(cudaEventRecord(event_, stream.handle()), "cudaEventRecord");
}

void Event::wait() const { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

}  // namespace hyb::kernels::cuda
