#include "app/doctor/card_checkup.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "kernels/device.h"

namespace card_checkup_test {

using namespace hyb;
using namespace hyb::app;

namespace {

CardCheckup some_card() {
  CardCheckup checkup;
  checkup.card = {.name = "NVIDIA H100 80GB HBM3",
                  .major = 9,
                  .minor = 0,
                  .processors = 132,
                  .memory_bytes = std::size_t{79} << 30,
                  .free_bytes = std::size_t{70} << 30,
                  .l2_bytes = std::size_t{50} << 20,
                  .driver_cuda = 13000,
                  .runtime_cuda = 12080};
  checkup.mapping_bytes = std::size_t{2} << 20;
  checkup.aliases = true;
  checkup.has_library = true;
  checkup.library = "libcublasLt.so.12, version 12.8.4";
  checkup.bytes_per_s = 3.0e12;
  return checkup;
}

CudaCheckup with(bool build_has_cuda, CardTraces traces, std::optional<CardCheckup> card) {
  CudaCheckup cuda;
  cuda.build_has_cuda = build_has_cuda;
  cuda.traces = traces;
  cuda.card = std::move(card);
  if (build_has_cuda && !cuda.card) cuda.failure = "cuda: no card: why; advice";
  return cuda;
}

std::string text_of(const CudaCheckup& cuda) {
  std::string all;
  for (const auto& [what, text] : cuda_rows(cuda)) all += what + ": " + text + "\n";
  return all;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr CardTraces nothing = {}, device_only = {.has_device = true, .has_driver = false},
                     both = {.has_device = true, .has_driver = true};

TEST_SUITE("app/doctor/card_checkup") {
  TEST_CASE("a card is described whole, in both forms") {
    const CudaCheckup cuda = with(true, both, some_card());
    const std::string text = text_of(cuda);
    for (const char* const part :
         {"H100", "sm_90", "132", "50.0 MiB", "79.0 GiB, 70.0 GiB free", "12.8", "13.0",
          "3000.0 GB/s", "2.0 MiB", "shows the same bytes", "libcublasLt.so.12, version"}) {
      CAPTURE(part);
      CHECK(has(text, part));
    }
    CHECK_FALSE(has(text, "to install"));
    const Json json = cuda_json(cuda);
    CHECK(json["card"]["compute_capability"] == "9.0");
    CHECK(json["card"]["runtime_cuda"] == "12.8");
    CHECK(json["card"]["aliases"] == true);
    CHECK(json["card"]["mapping_failure"].is_null());
    CHECK(json["to_install"].is_null());
  }

  TEST_CASE("what fails on a card is reported in its row") {
    CardCheckup card = some_card();
    card.aliases = false;
    card.has_library = false;
    card.library = "libcublasLt.so.13: cannot open";
    card.copy_failure = "no memory for the probe";
    std::string text = text_of(with(true, both, card));
    CHECK(has(text, "--memory-mode flat"));
    CHECK(has(text, "cannot open"));
    CHECK(has(text, "nvidia-cublas"));
    CHECK(has(text, "no memory for the probe"));
    card.mapping_failure = "the driver says no";
    text = text_of(with(true, both, card));
    CHECK(has(text, "the driver says no"));
    CHECK(cuda_json(with(true, both, card))["card"]["mapping_failure"] == "the driver says no");
  }

  TEST_CASE("what to install follows from what is missing") {
    CHECK(cuda_advice(with(false, nothing, {})) == "");
    CHECK(has(cuda_advice(with(false, both, {})), "toolkit"));
    CHECK(cuda_advice(with(true, nothing, {})) == "");
    CHECK(has(cuda_advice(with(true, device_only, {})), "libcuda.so.1"));
    CHECK(has(cuda_advice(with(true, both, {})), "as new as"));
    CHECK(cuda_advice(with(true, both, some_card())) == "");
    CHECK(has(text_of(with(true, both, {})),
              "cuda: no card: why; the machine has an NVIDIA device and libcuda\n"));
    CHECK(has(text_of(with(true, nothing, {})),
              "cuda: no card: why; the machine has no NVIDIA device and no libcuda\n"));
    CHECK(has(text_of(with(false, both, {})),
              "cuda: not in this build; the machine has an NVIDIA device and libcuda\n"));
    CHECK(cuda_json(with(false, both, {}))["card"].is_null());
  }

  TEST_CASE("what --device auto means is a row of its own, with the reason") {
    CudaCheckup cuda = with(true, both, some_card());
    cuda.automatic = {.device = kernels::Device::cuda};
    CHECK(has(text_of(cuda), "device: cuda, by --device auto\n"));
    CHECK(cuda_json(cuda)["device"] == "cuda");
    CHECK(cuda_json(cuda)["device_reason"].is_null());
    cuda.automatic = {.reason = "no room"};
    CHECK(has(text_of(cuda), "device: cpu, by --device auto: no room\n"));
    CHECK(cuda_json(cuda)["device"] == "cpu");
    CHECK(cuda_json(cuda)["device_reason"] == "no room");
  }

  TEST_CASE("this build says of itself what it is") {
    const CudaCheckup cuda = examine_cuda();
    CHECK(cuda.build_has_cuda == kernels::has_cuda);
    CHECK(cuda.card.has_value() == (kernels::has_cuda && cuda.failure.empty()));
    if (cuda.card) CHECK(cuda.card->bytes_per_s > 0.0);
    CHECK_FALSE(cuda_rows(cuda).empty());
  }
}

}  // namespace

}  // namespace card_checkup_test
