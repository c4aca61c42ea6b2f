#include "app/doctor/card_checkup.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/base/texts.h"
#include "core/base/error.h"
#include "kernels/arena/cuda_arena.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/library_products.h"
#include "kernels/probe.h"
#include "kernels/transfer.h"

namespace hyb::app {
namespace {

/// Returns the text of what `action` throws; "" if it throws nothing.
template <typename Action>
std::string failure_of(const Action& action) {
  try {
    action();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

/// True if bytes written at one mapping of a handle are read at another.
bool shows_aliases(kernels::Queue& queue, kernels::Arena& arena) {
  const std::size_t bytes = arena.handle_bytes();
  std::byte* const range = arena.reserve(2 * bytes);
  const kernels::HandleId handle = arena.create();
  arena.map(range, {&handle, 1});
  arena.map(range + bytes, {&handle, 1});
  const std::array written = {std::byte{0x5a}, std::byte{0xc3}, std::byte{0x0f}, std::byte{0x96}};
  std::array<std::byte, 4> read{};
  kernels::upload(queue, range + bytes / 2, written);
  kernels::download(queue, read, range + bytes + bytes / 2);
  arena.unmap(range, {&handle, 1});
  arena.unmap(range + bytes, {&handle, 1});
  arena.release(handle);
  arena.unreserve(range, 2 * bytes);
  return read == written;
}

void try_mappings(kernels::Queue& queue, CardCheckup& checkup) {
  if constexpr (kernels::has_cuda) {
    checkup.mapping_failure = failure_of([&] {
      checkup.mapping_bytes = kernels::handle_bytes_min(kernels::Device::cuda);
      kernels::CudaArena arena(kernels::cuda::driver(), 0, checkup.mapping_bytes);
      checkup.aliases = shows_aliases(queue, arena);
    });
  }
}

/// The best of some rounds: the first finds the card's clocks low.
void measure_copies(kernels::Queue& queue, CardCheckup& checkup) {
  constexpr std::size_t probed_bytes = std::size_t{256} << 20;
  constexpr int rounds = 3;
  checkup.copy_failure = failure_of([&] {
    kernels::ReadProbe probe(queue, probed_bytes);
    for (int i = 0; i < rounds; ++i) {
      checkup.bytes_per_s = std::max(checkup.bytes_per_s, probe.bytes_per_s());
    }
  });
}

CardCheckup examine_card() {
  CardCheckup checkup;
  checkup.card = kernels::card();
  kernels::Queue queue(kernels::Device::cuda, {.threads = 1, .isa = {}});
  if constexpr (kernels::has_cuda) {
    checkup.has_library = queue.stream().products() != nullptr;
    checkup.library = queue.stream().products_text();
  }
  try_mappings(queue, checkup);
  measure_copies(queue, checkup);
  return checkup;
}

}  // namespace

CudaCheckup examine_cuda() {
  CudaCheckup checkup;
  checkup.build_has_cuda = kernels::has_cuda;
  const CardEvidence evidence = find_card();
  checkup.traces = evidence.traces;
  checkup.automatic = choose_device(evidence);
  if (!kernels::has_cuda) return checkup;
  checkup.failure = failure_of([&] { checkup.card = examine_card(); });
  return checkup;
}

namespace {

/// 12040 is 12.4.
std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string mapping_text(const CardCheckup& checkup) {
  if (!checkup.mapping_failure.empty()) return checkup.mapping_failure;
  return fmt::format("in units of {}; one memory at two addresses {}",
                     bytes_text(checkup.mapping_bytes),
                     checkup.aliases ? "shows the same bytes"
                                     : "does not show the same bytes: use --memory-mode flat");
}

/// Says what --device auto chooses here, and why.
std::string device_text(const DeviceChoice& choice) {
  if (choice.device == kernels::Device::cuda) return "cuda, by --device auto";
  return "cpu, by --device auto" + (choice.reason.empty() ? "" : ": " + choice.reason);
}

/// Without a card to describe. What a failure advises besides its reason is for other commands.
std::string absence_text(const CudaCheckup& cuda) {
  constexpr std::string_view label = "cuda: ";  // the row has it, too
  std::string reason = cuda.failure.substr(0, cuda.failure.find(';'));
  if (reason.starts_with(label)) reason.erase(0, label.size());
  return fmt::format("{}; the machine has {} and {}", reason.empty() ? "not in this build" : reason,
                     cuda.traces.has_device ? "an NVIDIA device" : "no NVIDIA device",
                     cuda.traces.has_driver ? "libcuda" : "no libcuda");
}

}  // namespace

std::string cuda_advice(const CudaCheckup& cuda) {
  if (!cuda.build_has_cuda) {
    if (!cuda.traces.has_device) return "";
    return "the CUDA toolkit, 12.4 or later, and build hyb again where its nvcc is";
  }
  if (!cuda.card) {
    if (!cuda.traces.has_device && !cuda.traces.has_driver) return "";
    return cuda.traces.has_driver ? "a driver of NVIDIA's that is as new as this build's CUDA"
                                  : "NVIDIA's driver, whose libcuda.so.1 is not found";
  }
  if (cuda.card->has_library) return "";
  return "libcublasLt.so.12 or .13 for long prompts: it is part of the CUDA toolkit and of the pip "
         "package nvidia-cublas; LD_LIBRARY_PATH may name its folder";
}

std::vector<std::pair<std::string, std::string>> cuda_rows(const CudaCheckup& cuda) {
  std::vector<std::pair<std::string, std::string>> rows = {{"device", device_text(cuda.automatic)}};
  if (!cuda.card) {
    rows.emplace_back("cuda", absence_text(cuda));
  } else {
    const CardCheckup& checkup = *cuda.card;
    const kernels::Card& card = checkup.card;
    rows.emplace_back("cuda",
                      fmt::format("{}, the driver's {}", cuda_version_text(card.runtime_cuda),
                                  cuda_version_text(card.driver_cuda)));
    rows.emplace_back("card",
                      fmt::format("{}, sm_{}{}, {} multiprocessors, L2 {}", card.name, card.major,
                                  card.minor, card.processors, bytes_text(card.l2_bytes)));
    const std::string rate =
        checkup.copy_failure.empty()
            ? fmt::format("copies read and write {:.1f} GB/s", checkup.bytes_per_s / 1e9)
            : checkup.copy_failure;
    rows.emplace_back("card memory", fmt::format("{}, {} free; {}", bytes_text(card.memory_bytes),
                                                 bytes_text(card.free_bytes), rate));
    rows.emplace_back("card mappings", mapping_text(checkup));
    rows.emplace_back("cublaslt", checkup.library);
  }
  const std::string advice = cuda_advice(cuda);
  if (!advice.empty()) rows.emplace_back("to install", advice);
  return rows;
}

Json cuda_json(const CudaCheckup& cuda) {
  const std::string advice = cuda_advice(cuda);
  const DeviceChoice& choice = cuda.automatic;
  Json json = {{"in_this_build", cuda.build_has_cuda},
               {"device", choice.device == kernels::Device::cuda ? "cuda" : "cpu"},
               {"device_reason", choice.reason.empty() ? Json() : Json(choice.reason)},
               {"has_nvidia_device", cuda.traces.has_device},
               {"has_libcuda", cuda.traces.has_driver},
               {"failure", cuda.failure.empty() ? Json() : Json(cuda.failure)},
               {"to_install", advice.empty() ? Json() : Json(advice)},
               {"card", Json()}};
  if (!cuda.card) return json;
  const CardCheckup& checkup = *cuda.card;
  const kernels::Card& card = checkup.card;
  const auto text = [](const std::string& failure) {
    return failure.empty() ? Json() : Json(failure);
  };
  json["card"] = {{"name", card.name},
                  {"compute_capability", fmt::format("{}.{}", card.major, card.minor)},
                  {"multiprocessors", card.processors},
                  {"memory_bytes", card.memory_bytes},
                  {"memory_free_bytes", card.free_bytes},
                  {"l2_bytes", card.l2_bytes},
                  {"driver_cuda", cuda_version_text(card.driver_cuda)},
                  {"runtime_cuda", cuda_version_text(card.runtime_cuda)},
                  {"mapping_bytes", checkup.mapping_bytes},
                  {"aliases", checkup.aliases},
                  {"mapping_failure", text(checkup.mapping_failure)},
                  {"has_cublaslt", checkup.has_library},
                  {"cublaslt", checkup.library},
                  {"copy_bytes_per_s", checkup.bytes_per_s},
                  {"copy_failure", text(checkup.copy_failure)}};
  return json;
}

}  // namespace hyb::app
