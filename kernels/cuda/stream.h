#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/buffer.h"

struct CUevent_st;

namespace hyb::kernels::cuda {

class Stream;

/// A place in a stream's work. Throws Error(runtime) with CUDA's reason where a call fails.
class Event {
 public:
  Event();  ///< of streams of the current card
  explicit Event(int card);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// After everything that was enqueued until now. Not while a graph is captured.
  void record(Stream& stream);
  /// Returns when the stream has reached the last record(); at once if there was none.
  void wait() const;
  /// Says whether wait() would return at once.
  bool is_done() const;
  /// Makes later work of the stream, of any card, wait for the last record().
  void hold(Stream& stream) const;

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

struct StreamOptions {
  int card = 0;
  bool batch_invariant = false;  ///< QueueOptions'
  bool is_urgent = false;        ///< QueueOptions'
};

/// Holds what launches need to know of a kernel's code as the driver has loaded it.
struct LoadedKernel {
  bool can_start_early;  ///< before the previous kernel has ended
};

/// The work of a device, in order, asynchronous to the host. Throws Error(runtime) with CUDA's
/// reason where there is no device or a call fails.
class Stream {
 public:
  explicit Stream(const StreamOptions& options = {});
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  CUstream_st* handle() const { return stream_; }
  int card() const { return card_; }
  bool batch_invariant() const { return batch_invariant_; }
  void set_batch_invariant(bool wanted) { batch_invariant_ = wanted; }
  /// Multiprocessors of the card, each of which runs several blocks at a time.
  int processors() const { return processors_; }
  /// The most shared memory of a block.
  std::size_t shared_bytes_max() const { return shared_bytes_max_; }
  /// The card lets a kernel start before the previous one has ended (sm_90 and later), and
  /// LaunchTuning does not forbid it.
  bool can_start_early() const { return can_start_early_; }
  std::optional<int> carveout() const { return carveout_; }  ///< LaunchTuning's

  /// A kernel by its address; null before its first launch.
  const LoadedKernel* find_loaded(const void* kernel) const {
    const auto found = loaded_.find(kernel);
    return found == loaded_.end() ? nullptr : &found->second;
  }
  const LoadedKernel& add_loaded(const void* kernel, const LoadedKernel& loaded) {
    return loaded_.emplace(kernel, loaded).first->second;
  }

  /// Made at the first call.
  Bounce& bounce();
  /// Gives it back once its copies are done.
  void drop_bounce();
  Sampler& sampler();
  /// Makes room for the rows that products gather by an order of columns (Weight::order). Earlier
  /// rooms stay, since what was recorded uses them.
  void reserve_ordered(std::size_t bytes);
  /// Returns that room, which the next such product writes to.
  const Buffer& ordered() const { return ordered_.back(); }
  /// Dense products of many rows may go to the library from now on, unless it is null. `text` says
  /// which one it is, or why there is none.
  void use(std::unique_ptr<LibraryProducts> products, std::string text);
  LibraryProducts* products() const { return products_.get(); }
  const std::string& products_text() const { return products_text_; }

  /// Waits until all enqueued work is done; errors of kernels are thrown here.
  void wait();
  /// Says whether the work is done, or has failed.
  bool is_done() const;

 private:
  CUstream_st* stream_ = nullptr;
  int card_;
  int processors_ = 1;
  std::size_t shared_bytes_max_ = 0;
  std::unordered_map<const void*, LoadedKernel> loaded_;
  std::unique_ptr<Bounce> bounce_;
  std::unique_ptr<Sampler> sampler_;
  std::vector<Buffer> ordered_ = std::vector<Buffer>(1);  ///< the last is the largest
  bool can_start_early_ = false;
  std::optional<int> carveout_;
  bool batch_invariant_;
  std::unique_ptr<LibraryProducts> products_;
  std::string products_text_ = "not requested";
};

/// For code that does not link to all of the class. Throws Error(usage) where there is no card.
Stream* make_stream(const StreamOptions& options);
/// Returns the bytes of the card that a stream holds then.
std::size_t stream_bytes(bool batch_invariant);
void delete_stream(Stream* stream);

/// Work that was captured once and is replayed with one call: the same kernels with the same
/// arguments, on the contents that their addresses have then.
class Graph {
 public:
  /// Captures what `body` enqueues. The body may not wait or allocate.
  Graph(Stream& stream, const std::function<void()>& body);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void replay(Stream& stream) const;

 private:
  CUgraphExec_st* executable_ = nullptr;
};

}  // namespace hyb::kernels::cuda
