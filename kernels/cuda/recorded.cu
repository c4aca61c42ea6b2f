#include "kernels/cuda/recorded.h"

#include "kernels/cuda/staging.h"
#include "kernels/cuda/stream.h"

namespace hyb::kernels::cuda {
namespace {

class DeviceTables final : public StagedTables {
 public:
  DeviceTables(Stream& stream, std::size_t bytes) : staging_(stream) { staging_.reserve(bytes); }

  void clear() override {
    staging_.clear();
    first_bytes_ = 0;
  }

  Table take(std::int64_t count) override {
    const Staged<std::int32_t> place = staging_.take<std::int32_t>(count);
    if (count == 0) return {.host = {}, .device = {}};
    if (first_bytes_ == 0) first_bytes_ = place.host.size_bytes();
    return {.host = place.host, .device = Tensor(place.device, DType::i32, {count})};
  }

  void upload(bool keeps_first) override { staging_.upload(keeps_first ? first_bytes_ : 0); }

 private:
  Staging staging_;
  std::size_t first_bytes_ = 0;
};

class RecordedGraph final : public Recording {
 public:
  RecordedGraph(Stream& stream, const std::function<void()>& body)
      : stream_(stream), graph_(stream, body) {}

  void replay() override { graph_.replay(stream_); }

 private:
  Stream& stream_;
  Graph graph_;
};

}  // namespace

StagedBytes device_tables_bytes(std::size_t bytes) {
  const std::size_t held = Staging::reserved_bytes(bytes);
  return {.device = held, .pinned = 2 * held};
}

std::unique_ptr<StagedTables> make_staged_tables(Stream& stream, std::size_t bytes) {
  return std::make_unique<DeviceTables>(stream, bytes);
}

std::unique_ptr<Recording> record(Stream& stream, const std::function<void()>& body) {
  return std::make_unique<RecordedGraph>(stream, body);
}

}  // namespace hyb::kernels::cuda
