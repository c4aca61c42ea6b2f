#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/cuda_emulator/card.h"
#include "tests/cuda_emulator/device/fault.h"
#include "tests/cuda_emulator/device/grid.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/runtime/kernel_table.h"
#include "tests/cuda_emulator/runtime/machine.h"

namespace emulator {
namespace {

constexpr int shared_bytes_default = 48 << 10;
constexpr std::size_t argument_bytes_max = 4096;

/// Of an H200, unless the environment says otherwise: grids depend on it.
int processors() {
  const char* const wanted = std::getenv("HYB_EMULATED_PROCESSORS");
  return wanted == nullptr ? 132 : std::max(1, std::atoi(wanted));
}

bool has_a_shape(const Launch& launch) {
  const auto [x, y, z] = launch.blocks;
  const bool blocks = x > 0 && x <= 0x7fffffffU && y > 0 && y <= 65535 && z > 0 && z <= 65535;
  return blocks && launch.block_size() > 0 && launch.block_size() <= threads_per_block_max &&
         launch.threads.z <= 64;
}

}  // namespace

cudaError_t set_attribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
    if (value < -1 || value > 100) return m.note(cudaErrorInvalidValue);
    m.carveouts[kernel] = value;
    return m.note(cudaSuccess);
  }
  if (value < 0 ||
      static_cast<std::size_t>(value) + needs_of(kernel).shared_bytes > m.block_shared_bytes) {
    return m.note(cudaErrorInvalidValue);
  }
  m.shared_bytes_max[{current_card, kernel}] = value;
  return m.note(cudaSuccess);
}

cudaError_t get_attributes(cudaFuncAttributes* attributes, const void* kernel) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  *attributes = {.sharedSizeBytes = needs_of(kernel).shared_bytes, .ptxVersion = m.ptx_version};
  return m.note(cudaSuccess);
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::span<const std::byte> arguments, std::function<void()> body) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const cudaStream_t stream = m.find(config.stream);
  if (!is_launchable(stream)) return m.note(cudaErrorInvalidResourceHandle);
  Launch launch{.kernel = kernel,
                .card = stream->card,
                .blocks = config.gridDim,
                .threads = config.blockDim,
                .shared_bytes = config.dynamicSmemBytes,
                .body = std::move(body)};
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == cudaLaunchAttributeCooperative) {
      launch.cooperative = attribute.val.cooperative != 0;
    } else if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      launch.starts_early = attribute.val.programmaticStreamSerializationAllowed != 0;
    } else {
      return m.note(cudaErrorInvalidValue);
    }
  }
  if (!has_a_shape(launch)) return m.note(cudaErrorInvalidConfiguration);
  const auto set = m.shared_bytes_max.find({launch.card, kernel});
  const bool is_opted_in = set != m.shared_bytes_max.end();
  const int shared_max = is_opted_in ? set->second : shared_bytes_default;
  launch.shared_limit = is_opted_in ? SharedMemory::bytes_max : shared_bytes_default;
  if (launch.shared_bytes > static_cast<std::size_t>(shared_max) ||
      arguments.size() > argument_bytes_max) {
    return m.note(cudaErrorInvalidValue);
  }
  if (registers_of_block(needs_of(kernel), launch.block_size()) > m.registers) {
    return m.note(cudaErrorLaunchOutOfResources);
  }
  if (launch.cooperative && std::uint64_t{launch.block_count()} * launch.block_size() >
                                Launcher::cooperative_threads_max) {
    return m.note(cudaErrorCooperativeLaunchTooLarge);
  }
  if (stream->captured_by == nullptr) {
    ++m.calls.kernels;
    m.calls.early_kernels += launch.starts_early ? 1 : 0;
  }
  m.record({.kernel = kernel,
            .blocks = launch.block_count(),
            .threads = launch.block_size(),
            .shared_bytes = launch.shared_bytes,
            .cooperative = launch.cooperative,
            .starts_early = launch.starts_early,
            .arguments = {arguments.begin(), arguments.end()}});
  if (m.error() == cudaSuccess && !m.is_recording_only) m.add(stream, std::move(launch));
  return m.note(cudaSuccess);
}

void set_schedule(const Schedule& schedule) {
  const std::lock_guard lock(machine().mutex);
  machine().schedule = schedule;
}

void set_ptx_version(int version) {
  const std::lock_guard lock(machine().mutex);
  machine().ptx_version = version;
}

void set_registers(unsigned count) {
  const std::lock_guard lock(machine().mutex);
  machine().registers = count;
}

void set_block_shared_bytes(std::size_t bytes) {
  const std::lock_guard lock(machine().mutex);
  machine().block_shared_bytes = bytes;
}

HostCalls take_host_calls() {
  const std::lock_guard lock(machine().mutex);
  return std::exchange(machine().calls, {});
}

int carveout_of(const void* kernel) {
  const std::lock_guard lock(machine().mutex);
  const auto found = machine().carveouts.find(kernel);
  return found == machine().carveouts.end() ? -1 : found->second;
}

std::int64_t take_blocks_run() {
  const std::lock_guard lock(machine().mutex);
  return std::exchange(machine().blocks_run, 0);
}

void record_only(std::size_t device_bytes) {
  const std::lock_guard lock(machine().mutex);
  machine().is_recording_only = true;
  device_memory().reserve_only();
  for (int card = 0; card < cards_max; ++card) ledger(card).bytes_max = device_bytes;
}

bool is_recording_only() { return machine().is_recording_only; }

void keep_records() {
  const std::lock_guard lock(machine().mutex);
  machine().keeps_records = true;
}

void end_records() {
  const std::lock_guard lock(machine().mutex);
  machine().keeps_records = false;
}

std::vector<RecordedWork> take_records() {
  const std::lock_guard lock(machine().mutex);
  return std::exchange(machine().records, {});
}

std::string fault_text() { return fault_log().text(); }

void reset() {
  const std::lock_guard lock(machine().mutex);
  machine().reset();
}

}  // namespace emulator

using emulator::machine;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevicePointer:
      return "cudaErrorInvalidDevicePointer";
    case cudaErrorInvalidMemcpyDirection:
      return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorLaunchOutOfResources:
      return "cudaErrorLaunchOutOfResources";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorCooperativeLaunchTooLarge:
      return "cudaErrorCooperativeLaunchTooLarge";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
  }
  return "an error unknown to the emulator";
}

const char* cudaGetErrorString(cudaError_t error) {
  static thread_local std::string text;
  text = emulator::fault_text();
  return error == cudaErrorLaunchFailure && !text.empty() ? text.c_str() : cudaGetErrorName(error);
}

cudaError_t cudaGetLastError() { return machine().last_error(true); }
cudaError_t cudaPeekAtLastError() { return machine().last_error(false); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = machine().cards;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = emulator::current_card;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (!machine().has_card(device)) return machine().note(cudaErrorInvalidDevice);
  emulator::current_card = device;
  return machine().note(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!machine().has_card(device) || !machine().has_card(peer)) {
    return machine().note(cudaErrorInvalidDevice);
  }
  *can = device != peer && machine().peer_access ? 1 : 0;
  return cudaSuccess;
}

/// Clocks in kHz and the memory's width in bits: an H200's.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!machine().has_card(device)) return machine().note(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrClockRate:
      *value = 1'980'000;
      return cudaSuccess;
    case cudaDevAttrMemoryClockRate:
      *value = 3'201'000;
      return cudaSuccess;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = 6144;
      return cudaSuccess;
  }
  return machine().note(cudaErrorInvalidValue);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!machine().has_card(device)) return machine().note(cudaErrorInvalidDevice);
  *properties = {.name = {},
                 .totalGlobalMem = emulator::ledger(device).bytes_max,
                 .sharedMemPerBlock = emulator::shared_bytes_default,
                 .sharedMemPerBlockOptin = emulator::machine().block_shared_bytes,
                 .sharedMemPerMultiprocessor = 228 << 10,
                 .major = 9,
                 .minor = 0,
                 .multiProcessorCount = emulator::processors(),
                 .maxThreadsPerBlock = emulator::threads_per_block_max,
                 .warpSize = emulator::lanes_per_warp,
                 .l2CacheSize = 1 << 20,
                 .cooperativeLaunch = 1};
  std::snprintf(properties->name, sizeof(properties->name), "emulated CUDA device");
  return cudaSuccess;
}
