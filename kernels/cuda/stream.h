#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

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

struct CUstream_st;
struct CUgraphExec_st;

namespace hyb::kernels {
class LibraryProducts;
}

namespace hyb::kernels::cuda {

class Bounce;
class Sampler;

/// Where a device's work goes: in order, behind the host's back. Throws Error(runtime) with CUDA's
/// reason where there is no device or a call fails.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  CUstream_st* handle() const { return stream_; }
  /// QueueOptions::batch_invariant
  bool batch_invariant() const { return batch_invariant_; }
  void set_batch_invariant(bool wanted) { batch_invariant_ = wanted; }
  /// Of the card, each of which runs some blocks side by side.
  int processors() const { return processors_; }
  /// Shared memory that a block may ask for.
  std::size_t shared_bytes_max() const { return shared_bytes_max_; }
  /// The card lets a kernel start before the one in front of it has ended (sm_90 and later).
  bool can_start_early() const { return can_start_early_; }

  /// Made when they are first asked for.
  Bounce& bounce();
  /// Gives it back once its copies are done.
  void drop_bounce();
  Sampler& sampler();
  /// Dense products of many rows may go to the library from now on, unless it is null. `text` tells
  /// a person which one it is, or why there is none.
  void use(std::unique_ptr<LibraryProducts> products, std::string text);
  LibraryProducts* products() const { return products_.get(); }
  const std::string& products_text() const { return products_text_; }

  /// Waits until everything asked for is done; what a kernel did wrong is thrown here.
  void wait();

 private:
  CUstream_st* stream_ = nullptr;
  int processors_ = 1;
  std::size_t shared_bytes_max_ = 0;
  std::unique_ptr<Bounce> bounce_;
  std::unique_ptr<Sampler> sampler_;
  bool can_start_early_ = false;
  bool batch_invariant_ = false;
  std::unique_ptr<LibraryProducts> products_;
  std::string products_text_ = "not asked for";
};

/// For who does not see all of the class at link time. Throws Error(usage) where there is no card.
Stream* make_stream(bool batch_invariant);
/// What it holds of the card then.
std::size_t stream_bytes(bool batch_invariant);
void delete_stream(Stream* stream);

/// Work that was written down once and is done again with one call: the same kernels with the same
/// arguments on whatever stands at their addresses then.
class Graph {
 public:
  /// Writes down what `body` asks of the stream. The body may not wait or allocate.
  Graph(Stream& stream, const std::function<void()>& body);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void replay(Stream& stream) const;

 private:
  CUgraphExec_st* executable_ = nullptr;
};

}  // namespace hyb::kernels::cuda
