#include "app/machine/device.h"

#include <doctest/doctest.h>

#include "core/base/error.h"

namespace device_test {

using namespace hyb;
using namespace hyb::app;
using kernels::Device;

namespace {

CardEvidence with_card() {
  CardEvidence evidence = {.build_has_cuda = true,
                           .traces = {.has_device = true, .has_driver = true, .has_module = true}};
  evidence.card = kernels::Card{.name = "NVIDIA H100 80GB HBM3",
                                .major = 9,
                                .minor = 0,
                                .processors = 132,
                                .memory_bytes = std::size_t{79} << 30,
                                .free_bytes = std::size_t{70} << 30,
                                .l2_bytes = std::size_t{50} << 20,
                                .driver_cuda = 13000,
                                .runtime_cuda = 12080,
                                .kernels_min = 80};
  return evidence;
}

CardEvidence without_card(bool build_has_cuda, CardTraces traces) {
  CardEvidence evidence = {.build_has_cuda = build_has_cuda, .traces = traces};
  if (build_has_cuda)
    evidence.failure = "cuda: no card that can be used (why); hyb doctor says more";
  return evidence;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE("app/device") {
  TEST_CASE("auto takes a usable card, without a word") {
    const DeviceChoice choice = choose_device(with_card());
    CHECK(choice.device == Device::cuda);
    CHECK(choice.reason == "");
  }

  TEST_CASE("auto takes the CPU where no card is present, without a word") {
    for (const bool build_has_cuda : {false, true}) {
      for (const bool has_driver : {false, true}) {
        const DeviceChoice choice =
            choose_device(without_card(build_has_cuda, {.has_driver = has_driver}));
        CHECK(choice.device == Device::cpu);
        CHECK(choice.reason == "");
      }
    }
  }

  TEST_CASE("auto gives the reason why a card that is present is not used") {
    struct Row {
      CardEvidence evidence;
      const char* reason;
    };
    CardEvidence old_card = with_card(), full_card = with_card();
    old_card.card->major = 7;
    old_card.card->minor = 5;
    full_card.card->free_bytes = std::size_t{100} << 20;
    const Row rows[] = {
        {without_card(false, {.has_device = true}), "built without CUDA"},
        {without_card(false, {.has_module = true}), "built without CUDA"},
        {without_card(true, {.has_module = true}), "cuda: no card that can be used (why)"},
        {old_card, "compute capability 7.5, the kernels of this build need 8.0"},
        {full_card, "only 100.0 MiB of the 79.0 GiB of NVIDIA H100 80GB HBM3 are free"},
    };
    for (const Row& row : rows) {
      CAPTURE(row.reason);
      const DeviceChoice choice = choose_device(row.evidence);
      CHECK(choice.device == Device::cpu);
      CHECK(has(choice.reason, row.reason));
    }
  }

  TEST_CASE("a hidden card and the emulated one are left alone, without a word") {
    CardEvidence hidden = with_card(), emulated = with_card();
    hidden.is_hidden = true;
    emulated.card->name = "emulated CUDA device";
    for (const CardEvidence& evidence : {hidden, emulated}) {
      CHECK(choose_device(evidence).device == Device::cpu);
      CHECK(choose_device(evidence).reason == "");
    }
  }

  TEST_CASE("--device takes three names") {
    CHECK(device_of(Device::cpu) == Device::cpu);
    CHECK(device_of(Device::cuda) == Device::cuda);
    CHECK(device_of(std::nullopt) == choose_device(find_card()).device);
  }
}

}  // namespace device_test
