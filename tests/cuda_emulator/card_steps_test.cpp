#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "tests/cuda_emulator/device/accesses.h"
#include "tests/models/loaded.h"
#include "tests/tools/recorded_step.h"

namespace card_steps_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

using Lines = std::vector<std::string>;

std::string text_of(const std::string& kernel, unsigned blocks, unsigned threads,
                    std::size_t shared, bool early) {
  return kernel + ": " + std::to_string(blocks) + " x " + std::to_string(threads) + ", " +
         std::to_string(shared) + (early ? " early" : "");
}

/// The kernels of a step that ran, with weights of bf16 or bits12.
Lines kernels_run(const std::string& fixture, const std::string& weights, const std::string& step) {
  TensorFiles files(golden_folder / fixture);
  kernels::Queue queue(kernels::Device::cuda, {.threads = 1, .isa = {}});
  const Model model =
      load_model(queue, Config::from_folder(golden_folder / fixture), files,
                 {.load = {.activation = DType::bf16, .lossless = weights == "bits12"},
                  .with_drafts = workload_of(step).has_drafts()});
  Lines lines;
  for (const emulator::RecordedWork& one :
       record_step(queue, model.plan, model.weights, model.geometry, workload_of(step))) {
    if (one.kernel == nullptr) continue;
    lines.push_back(text_of(emulator::kernel_name(one.kernel), one.blocks, one.threads,
                            one.shared_bytes, one.starts_early));
  }
  return lines;
}

/// The same, as the tool prints them, which has no weights and runs nothing.
Lines kernels_recorded(const std::string& fixture, const std::string& weights,
                       const std::string& step) {
  const std::string command = std::string(HYB_CARD_STEPS) + " '" +
                              (golden_folder / fixture).string() + "' " + weights + " " + step;
  const auto close = [](std::FILE* pipe) { pclose(pipe); };
  const std::unique_ptr<std::FILE, decltype(close)> pipe(popen(command.c_str(), "r"), close);
  REQUIRE(pipe != nullptr);
  std::string all;
  std::array<char, 4096> part;
  while (const std::size_t size = std::fread(part.data(), 1, part.size(), pipe.get())) {
    all.append(part.data(), size);
  }
  Lines lines;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = all.find('\n', begin);
    const auto line = nlohmann::json::parse(all.substr(begin, end - begin));
    begin = end + 1;
    if (!line.contains("kernel")) continue;
    lines.push_back(
        text_of(line["kernel"], line["blocks"], line["threads"], line["shared"], line["pdl"]));
  }
  return lines;
}

}  // namespace

TEST_SUITE("cuda_emulator/card_steps") {
  TEST_CASE("what card_steps records without weights are the launches of a step that runs") {
    for (const auto& [fixture, weights] :
         {std::pair<std::string, std::string>{"granite-moe-nope", "bf16"},
          {"granite-moe-nope", "bits12"},
          {"nemotron-moe", "bf16"},
          {"qwen3-next", "bf16"}}) {
      for (const std::string step : {"decode:1:5", "decode:9:5", "prefill:12:0"}) {
        CAPTURE(fixture);
        CAPTURE(weights);
        CAPTURE(step);
        const Lines run = kernels_run(fixture, weights, step);
        CHECK(run.size() > 5);
        CHECK(run == kernels_recorded(fixture, weights, step));
      }
    }
  }

  TEST_CASE("so are those of a step that verifies drafts, and of a draft layer's passes") {
    for (const std::string fixture : {"nemotron-moe", "qwen3-next"}) {
      for (const std::string step :
           {"verify:1:5:3", "verify:3:5:7", "verify:1:5:4:2", "draft:1:5:3", "draft:3:5:1"}) {
        CAPTURE(fixture);
        CAPTURE(step);
        const Lines run = kernels_run(fixture, "bf16", step);
        CHECK(run.size() > 5);
        CHECK(run == kernels_recorded(fixture, "bf16", step));
      }
    }
  }

  TEST_CASE("what is no step is refused") {
    for (const std::string step : {"decode:1", "decode:1:5:3", "verify:1:5", "verify:1:5:8",
                                   "verify:1:5:3:0", "draft:1:0:3", "draft:1:5:3:2", "steps:1:5"}) {
      CAPTURE(step);
      CHECK_THROWS_AS(workload_of(step), Error);
    }
  }
}

}  // namespace card_steps_test
