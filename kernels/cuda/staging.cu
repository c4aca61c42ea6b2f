#include "kernels/cuda/staging.h"

#include <algorithm>

#include "kernels/cuda/launch.h"

namespace hyb::kernels::cuda {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t chunk_bytes_min = 64 << 10;

/// The chunk with room for `bytes`, or null.
template <typename Chunk>
Chunk* chunk_for(std::vector<Chunk>& chunks, std::size_t bytes) {
  const auto fits = [&](const Chunk& chunk) { return chunk.bytes - chunk.used >= bytes; };
  const auto found = std::find_if(chunks.begin(), chunks.end(), fits);
  return found == chunks.end() ? nullptr : &*found;
}

/// Chunks double, so that there are never many.
template <typename Chunk>
std::size_t next_chunk_bytes(const std::vector<Chunk>& chunks, std::size_t wanted) {
  return std::max({wanted, chunk_bytes_min, chunks.empty() ? 0 : 2 * chunks.back().bytes});
}

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

void FreePinned::operator()(std::byte* bytes) const { cudaFreeHost(bytes); }
void FreeDevice::operator()(std::byte* bytes) const { cudaFree(bytes); }

PinnedBytes make_pinned(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMallocHost(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // reported here, and not by the next call
    throw Error(ErrorKind::memory, "memory: cudaMallocHost was refused " + std::to_string(bytes) +
                                       " bytes of pinned memory; the machine has too little left, "
                                       "not the card: end what else uses it");
  }
  check(error, "cudaMallocHost");
  return PinnedBytes(static_cast<std::byte*>(data));
}

DeviceBytes make_device(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) fail_out_of_memory("cudaMalloc", bytes);
  check(error, "cudaMalloc");
  return DeviceBytes(static_cast<std::byte*>(data));
}

void Staging::add_chunk(std::size_t bytes) {
  Chunk chunk;
  for (PinnedBytes& host : chunk.host) host = make_pinned(bytes);
  chunk.device = make_device(bytes);
  chunk.bytes = bytes;
  chunks_.push_back(std::move(chunk));
}

void Staging::reserve(std::size_t bytes) {
  if (!chunks_.empty() && chunks_.front().bytes >= bytes) return;
  stream_.wait();  // a copy may still read what is freed here
  chunks_.clear();
  add_chunk(reserved_bytes(bytes));
}

std::size_t Staging::reserved_bytes(std::size_t bytes) {
  return std::max(aligned(bytes), chunk_bytes_min);
}

void Staging::clear() {
  side_ = 1 - side_;
  uploaded_[side_].wait();
  for (Chunk& chunk : chunks_) chunk.used = 0;
}

Staging::Place Staging::take_bytes(std::size_t bytes) {
  const std::size_t wanted = aligned(bytes);
  Chunk* chunk = chunk_for(chunks_, wanted);
  if (chunk == nullptr) {
    add_chunk(next_chunk_bytes(chunks_, wanted));
    chunk = &chunks_.back();
  }
  const std::size_t at = chunk->used;
  chunk->used += wanted;
  return {.host = chunk->host[side_].get() + at, .device = chunk->device.get() + at};
}

void Staging::upload(std::size_t kept) {
  std::size_t begin = aligned(kept);
  for (const Chunk& chunk : chunks_) {
    if (chunk.used > begin) {
      check(cudaMemcpyAsync(chunk.device.get() + begin, chunk.host[side_].get() + begin,
                            chunk.used - begin, cudaMemcpyHostToDevice, stream_.handle()),
            "cudaMemcpyAsync");
    }
    begin = 0;
  }
  uploaded_[side_].record(stream_);
}

void Readback::reserve(std::size_t bytes) {
  if (!chunks_.empty() && chunks_.front().bytes >= bytes) return;
  stream_.wait();
  chunks_.clear();
  const std::size_t wanted = Staging::reserved_bytes(bytes);
  chunks_.push_back({.host = make_pinned(wanted), .bytes = wanted});
}

void Readback::clear() {
  if (!is_waited_for_) wait();
  for (Chunk& chunk : chunks_) chunk.used = 0;
}

const std::byte* Readback::copy_bytes(const void* device, std::size_t bytes) {
  const std::size_t wanted = aligned(bytes);
  Chunk* chunk = chunk_for(chunks_, wanted);
  if (chunk == nullptr) {
    const std::size_t room = next_chunk_bytes(chunks_, wanted);
    chunks_.push_back({.host = make_pinned(room), .bytes = room});
    chunk = &chunks_.back();
  }
  std::byte* const host = chunk->host.get() + chunk->used;
  chunk->used += wanted;
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_.handle()),
        "cudaMemcpyAsync");
  is_marked_ = is_waited_for_ = false;
  return host;
}

void Readback::mark() {
  done_.record(stream_);
  is_marked_ = true;
}

void Readback::wait() {
  if (!is_marked_) mark();
  done_.wait();
  is_waited_for_ = true;
}

Bounce::Bounce() {
  for (Piece& piece : pieces_) piece.bytes = make_pinned(piece_bytes);
}

std::span<std::byte> Bounce::next() {
  turn_ = 1 - turn_;
  pieces_[turn_].copied.wait();
  return {pieces_[turn_].bytes.get(), piece_bytes};
}

void Bounce::send(Stream& stream, std::byte* to, std::size_t bytes) {
  check(cudaMemcpyAsync(to, pieces_[turn_].bytes.get(), bytes, cudaMemcpyHostToDevice,
                        stream.handle()),
        "cudaMemcpyAsync");
  pieces_[turn_].copied.record(stream);
}

void upload_pieces(
    Stream& stream, std::byte* to, std::size_t bytes,
    const std::function<void(std::size_t offset, std::span<std::byte> piece)>& fill) {
  Bounce& bounce = stream.bounce();
  for (std::size_t offset = 0; offset < bytes;) {
    const std::span<std::byte> room = bounce.next();
    const std::size_t piece = std::min(room.size(), bytes - offset);
    fill(offset, room.first(piece));
    bounce.send(stream, to + offset, piece);
    offset += piece;
  }
}

}  // namespace hyb::kernels::cuda
