#include "kernels/recording.h"

#include "core/base/error.h"
#include "kernels/buffer.h"
#include "kernels/cuda/recorded.h"

namespace hyb::kernels {
namespace {

/// Ops read the very memory that the host fills.
class HostTables final : public StagedTables {
 public:
  explicit HostTables(std::size_t bytes) : room_(Device::cpu, bytes) {}

  void clear() override { used_ = 0; }

  Table take(std::int64_t count) override {
    const Tensor table = room_.tensor(used_, DType::i32, {count});
    used_ += (static_cast<std::size_t>(count) * sizeof(std::int32_t) + 63) / 64 * 64;
    return {.host = {table.as<std::int32_t>(), static_cast<std::size_t>(count)},
            .device = count == 0 ? Tensor() : table};
  }

  void upload(bool) override {}

 private:
  Buffer room_;
  std::size_t used_ = 0;
};

}  // namespace

StagedBytes staged_bytes(Device device, std::size_t bytes) {
  if constexpr (has_cuda) {
    if (device == Device::cuda) return cuda::device_tables_bytes(bytes);
  }
  return {.device = bytes, .pinned = 0};
}

std::unique_ptr<StagedTables> make_staged_tables(Queue& queue, std::size_t bytes) {
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) return cuda::make_staged_tables(queue.stream(), bytes);
  }
  return std::make_unique<HostTables>(bytes);
}

std::unique_ptr<Recording> record(Queue& queue, const std::function<void()>& body) {
  require(queue.device() == Device::cuda, "recording: of a queue on a card");
  if constexpr (has_cuda) return cuda::record(queue.stream(), body);
  return nullptr;
}

}  // namespace hyb::kernels
