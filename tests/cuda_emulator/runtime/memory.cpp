#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/cuda_emulator/device/device_memory.h"
#include "tests/cuda_emulator/runtime/machine.h"

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

/// The copy as it will be done. Pageable host memory is read now, as CUDA's own staging does; what
/// a graph copies is read at every replay.
emulator::HostAction copy_action(void* to, const void* from, std::size_t bytes, bool read_now) {
  if (!read_now) return [=] { std::memcpy(to, from, bytes); };
  const auto* const first = static_cast<const std::byte*>(from);
  return [to, staged = std::vector<std::byte>(first, first + bytes)] {
    std::memcpy(to, staged.data(), staged.size());
  };
}

/// A call that does its work before it returns is no part of a graph.
bool breaks_capture(Machine& m) {
  if (!m.any_capture()) return false;
  m.invalidate_captures();
  return true;
}

}  // namespace

cudaError_t cudaMalloc(void** at, std::size_t bytes) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  *at = nullptr;
  if (breaks_capture(m)) return m.note(cudaErrorStreamCaptureUnsupported);
  if (bytes == 0) return m.note(cudaSuccess);
  *at = device_memory().allocate(bytes);
  return m.note(*at == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFree(void* at) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (at == nullptr) return m.note(cudaSuccess);
  if (breaks_capture(m)) return m.note(cudaErrorStreamCaptureUnsupported);
  m.advance_all();
  return m.note(device_memory().release(at) ? cudaSuccess : cudaErrorInvalidDevicePointer);
}

cudaError_t cudaMallocHost(void** at, std::size_t bytes) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  *at = device_memory().allocate_pinned(bytes);
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
  *total_bytes = emulator::ledger().bytes_max;
  *free_bytes = emulator::ledger().free_bytes();
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
  const bool is_pageable =
      !device_memory().contains(from, bytes) && !device_memory().is_pinned(from);
  if (stream->captured_by == nullptr) ++m.calls.copies;
  m.record({.bytes = bytes});
  if (m.is_recording_only) return m.note(cudaSuccess);
  m.add(stream, copy_action(to, from, bytes, is_pageable && stream->captured_by == nullptr));
  return m.note(cudaSuccess);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (breaks_capture(m)) return m.note(cudaErrorStreamCaptureUnsupported);
  m.advance_blocking();
  if (const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr)) return error;
  m.advance(m.find(nullptr));
  return m.note(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t name) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const cudaStream_t stream = m.find(name);
  if (stream == nullptr) return m.note(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return m.note(cudaSuccess);
  if (!device_memory().contains(at, bytes)) return m.note(cudaErrorInvalidValue);
  m.record({.bytes = bytes});
  if (m.is_recording_only) return m.note(cudaSuccess);
  m.add(stream, emulator::HostAction([=] { std::memset(at, value, bytes); }));
  return m.note(cudaSuccess);
}

cudaError_t cudaMemset(void* at, int value, std::size_t bytes) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (breaks_capture(m)) return m.note(cudaErrorStreamCaptureUnsupported);
  m.advance_blocking();
  if (const cudaError_t error = cudaMemsetAsync(at, value, bytes, nullptr)) return error;
  m.advance(m.find(nullptr));
  return m.note(cudaSuccess);
}
