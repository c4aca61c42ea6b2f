#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "tests/cuda_emulator/runtime/machine.h"

using emulator::current_card;
using emulator::device_memory;
using emulator::Machine;
using emulator::machine;

namespace {

/// Would a card take these addresses for this kind of copy?
bool is_direction_right(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return true;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return device_memory().contains(to, bytes) == to_device &&
         device_memory().contains(from, bytes) == from_device;
}

/// The card that the memory is of; none for the host's.
emulator::CardSet owner_of(const void* at) {
  const int card = device_memory().card_of(at);
  return card < 0 ? emulator::no_card : emulator::only_card(card);
}

/// Pageable host memory is read now, as CUDA's own staging does; what a graph copies is read at
/// every replay.
std::function<void()> copy_body(void* to, const void* from, std::size_t bytes, bool read_now) {
  if (!read_now) return [=] { std::memcpy(to, from, bytes); };
  const auto* const first = static_cast<const std::byte*>(from);
  return [to, staged = std::vector<std::byte>(first, first + bytes)] {
    std::memcpy(to, staged.data(), staged.size());
  };
}

/// A copy whose addresses are right.
cudaError_t add_copy(Machine& m, void* to, const void* from, std::size_t bytes,
                     cudaStream_t stream) {
  const bool is_captured = stream->captured_by != nullptr;
  const bool is_pageable =
      !device_memory().contains(from, bytes) && !device_memory().is_pinned(from);
  if (!is_captured) ++m.calls.copies;
  m.record({.bytes = bytes});
  if (m.is_recording_only) return m.note(cudaSuccess);
  m.add(stream,
        emulator::Transfer{.cards = owner_of(to) | owner_of(from),
                           .body = copy_body(to, from, bytes, is_pageable && !is_captured)});
  return m.note(cudaSuccess);
}

}  // namespace

cudaError_t cudaMalloc(void** at, std::size_t bytes) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  *at = nullptr;
  if (m.break_captures()) return m.note(cudaErrorStreamCaptureUnsupported);
  if (bytes == 0) return m.note(cudaSuccess);
  *at = device_memory().allocate(current_card, bytes);
  return m.note(*at == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFree(void* at) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (at == nullptr) return m.note(cudaSuccess);
  if (m.break_captures()) return m.note(cudaErrorStreamCaptureUnsupported);
  const int card = device_memory().card_of(at);
  if (card < 0) return m.note(cudaErrorInvalidDevicePointer);
  m.advance_card(card);
  return m.note(device_memory().release(at) ? cudaSuccess : cudaErrorInvalidDevicePointer);
}

cudaError_t cudaMallocHost(void** at, std::size_t bytes) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  *at = device_memory().allocate_pinned(current_card, bytes);
  return m.note(*at == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFreeHost(void* at) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (at == nullptr) return m.note(cudaSuccess);
  m.advance_all();
  return m.note(device_memory().release_pinned(at) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  const std::lock_guard lock(machine().mutex);
  *total_bytes = emulator::ledger(current_card).bytes_max;
  *free_bytes = emulator::ledger(current_card).free_bytes();
  return machine().note(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t name) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const cudaStream_t stream = m.find(name);
  if (stream == nullptr) return m.note(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return m.note(cudaSuccess);
  if (!is_direction_right(to, from, bytes, kind)) return m.note(cudaErrorInvalidValue);
  return add_copy(m, to, from, bytes, stream);
}

/// Where cards cannot reach each other, a driver takes such a copy through the host.
cudaError_t cudaMemcpyPeerAsync(void* to, int to_card, const void* from, int from_card,
                                std::size_t bytes, cudaStream_t name) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const cudaStream_t stream = m.find(name);
  if (stream == nullptr) return m.note(cudaErrorInvalidResourceHandle);
  if (!m.has_card(to_card) || !m.has_card(from_card)) return m.note(cudaErrorInvalidDevice);
  if (bytes == 0) return m.note(cudaSuccess);
  if (!device_memory().is_of(to_card, to, bytes) ||
      !device_memory().is_of(from_card, from, bytes)) {
    return m.note(cudaErrorInvalidValue);
  }
  return add_copy(m, to, from, bytes, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (m.break_captures()) return m.note(cudaErrorStreamCaptureUnsupported);
  m.advance_blocking();
  if (const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr)) return error;
  m.advance(m.find(nullptr));
  return m.note(cudaSuccess);
}

/// As strict as for a kernel, which it may be; CUDA's guide allows other streams for copies only.
cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t name) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const cudaStream_t stream = m.find(name);
  if (!emulator::is_launchable(stream)) return m.note(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return m.note(cudaSuccess);
  if (!device_memory().is_of(stream->card, at, bytes)) return m.note(cudaErrorInvalidValue);
  m.record({.bytes = bytes});
  if (m.is_recording_only) return m.note(cudaSuccess);
  m.add(stream,
        emulator::Transfer{.cards = owner_of(at), .body = [=] { std::memset(at, value, bytes); }});
  return m.note(cudaSuccess);
}

cudaError_t cudaMemset(void* at, int value, std::size_t bytes) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (m.break_captures()) return m.note(cudaErrorStreamCaptureUnsupported);
  m.advance_blocking();
  if (const cudaError_t error = cudaMemsetAsync(at, value, bytes, nullptr)) return error;
  m.advance(m.find(nullptr));
  return m.note(cudaSuccess);
}
