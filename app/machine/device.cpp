#include "app/machine/device.h"

#include <dlfcn.h>

#include <filesystem>

#include <fmt/format.h>

#include "app/base/texts.h"
#include "app/machine/environment.h"
#include "core/base/error.h"
#include "core/base/log.h"

namespace hyb::app {
namespace {

/// Less is no room for a model: another process has the card.
constexpr std::size_t free_bytes_min = std::size_t{512} << 20;

/// The card of the emulated build: slower than the CPU, so it is used only on request.
constexpr const char* emulated_card = "emulated CUDA device";

bool exists(const char* path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// Why this card cannot be used; "": it can.
std::string objection_to(const kernels::Card& card) {
  if (10 * card.major + card.minor < card.kernels_min) {
    return fmt::format("{} has compute capability {}.{}, the kernels of this build need {}.{}",
                       card.name, card.major, card.minor, card.kernels_min / 10,
                       card.kernels_min % 10);
  }
  if (card.free_bytes >= free_bytes_min) return "";
  return fmt::format("only {} of the {} of {} are free", bytes_text(card.free_bytes),
                     bytes_text(card.memory_bytes), card.name);
}

}  // namespace

CardTraces card_traces() {
  CardTraces traces = {
      .has_device = exists("/dev/nvidiactl") || exists("/dev/nvidia0"),
      .has_driver = false,
      .has_module = exists("/proc/driver/nvidia/version"),
  };
  if (void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    traces.has_driver = true;
    dlclose(library);
  }
  return traces;
}

CardEvidence find_card() {
  CardEvidence evidence = {.build_has_cuda = kernels::has_cuda,
                           .is_hidden = read_environment().hides_cards,
                           .traces = card_traces()};
  if (!evidence.build_has_cuda || evidence.is_hidden) return evidence;
  try {
    evidence.card = kernels::card();
  } catch (const Error& error) {
    evidence.failure = error.what();
  }
  return evidence;
}

DeviceChoice choose_device(const CardEvidence& evidence) {
  if (evidence.is_hidden) return {};
  if (evidence.card) {
    if (evidence.card->name == emulated_card) return {};
    const std::string objection = objection_to(*evidence.card);
    return {.device = objection.empty() ? kernels::Device::cuda : kernels::Device::cpu,
            .reason = objection};
  }
  if (!evidence.traces.shows_card()) return {};
  if (!evidence.build_has_cuda) {
    return {.reason =
                "this hyb was built without CUDA; build it again where nvcc of CUDA 12.4 or "
                "later is (kernels/cuda/README.md)"};
  }
  return {.reason = evidence.failure.substr(0, evidence.failure.find(';'))};
}

const char* name_of(kernels::Device device) {
  return device == kernels::Device::cpu ? "cpu" : "cuda";
}

kernels::Device device_of(std::optional<kernels::Device> asked) {
  if (asked) return *asked;
  static const kernels::Device automatic = [] {
    const DeviceChoice choice = choose_device(find_card());
    if (!choice.reason.empty()) {
      log::warning("the NVIDIA card is not used, the CPU is: " + choice.reason);
    }
    return choice.device;
  }();
  return automatic;
}

}  // namespace hyb::app
