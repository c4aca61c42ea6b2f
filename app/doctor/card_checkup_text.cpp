#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/doctor/card_checkup.h"
#include "app/options.h"

namespace hyb::app {
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

/// Without a card to describe.
std::string absence_text(const CudaCheckup& cuda) {
  if (!cuda.failure.empty()) return cuda.failure;
  return fmt::format("not in this build; the machine has {} and {}",
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
  std::vector<std::pair<std::string, std::string>> rows;
  if (!cuda.card) {
    rows.emplace_back("cuda", absence_text(cuda));
  } else {
    const CardCheckup& checkup = *cuda.card;
    const kernels::Card& card = checkup.card;
    rows.emplace_back("cuda", fmt::format("{}, the driver's {}; ask for --device cuda",
                                          cuda_version_text(card.runtime_cuda),
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
  Json json = {{"in_this_build", cuda.build_has_cuda},
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
