#pragma once

struct CUevent_st;

namespace hyb::kernels::cuda {

class Stream;

/// A place in a stream's work. Throws Error(runtime) with CUDA's reason where a call fails.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Behind everything that was asked of the stream until now. Not inside of a graph.
  void record(Stream& stream);
  /// Returns when the stream has come to where it was recorded last; at once if it never was.
  void wait() const;

 private:
  CUevent_st* event_ = nullptr;
};

}  // namespace hyb::kernels::cuda
