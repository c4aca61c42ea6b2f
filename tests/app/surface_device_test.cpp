#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "kernels/device.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"

namespace surface_device_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

ToolResult tool(std::vector<std::string> arguments) {
  return run_tool({.arguments = std::move(arguments)});
}

/// A shell command line in a namespace of its own whose /dev has the file of a card, and no card.
ToolResult beside_a_card(const std::string& line, const std::string& visible_cards) {
  return run_tool({.arguments = {"-Urm", "sh", "-c",
                                 "mount -t tmpfs none /dev && touch /dev/nvidia0 && " + line},
                   .environment = {{"HYB", HYB_BINARY}, {"CUDA_VISIBLE_DEVICES", visible_cards}},
                   .program = "unshare"});
}

bool has_namespaces() { return beside_a_card("true", "").exit_code == 0; }

}  // namespace

TEST_SUITE("app/surface_device") {
  TEST_CASE("auto is the default; where no card is, it is the CPU without a word") {
    const ToolResult automatic = tool({"run", "demo", "-p", "hi", "-n", "4"});
    const ToolResult named = tool({"run", "demo", "-p", "hi", "-n", "4", "--device", "auto"});
    const ToolResult cpu = tool({"run", "demo", "-p", "hi", "-n", "4", "--device", "cpu"});
    for (const ToolResult& result : {automatic, named, cpu}) {
      CHECK(result.exit_code == 0);
      CHECK(result.out == cpu.out);
      CHECK(result.err == "");
    }
    CHECK(tool({"run", "demo", "-p", "hi", "--device", "tpu"}).exit_code == 2);
    if (!kernels::has_cuda) {
      const ToolResult cuda = tool({"run", "demo", "-p", "hi", "--device", "cuda"});
      CHECK(cuda.exit_code == 2);
      CHECK(cuda.out == "");
    }
    const Json doctor = parse_json(tool({"doctor", "--json"}).out, "stdout");
    CHECK(doctor["cuda"]["device"] == "cpu");
    CHECK(contains(tool({"doctor"}).out, "cpu, by --device auto"));
  }

  TEST_CASE("how kernels are to start is checked before anything runs") {
    const auto run = [](const char* name, const char* value) {
      return run_tool({.arguments = {"doctor"}, .environment = {{name, value}}});
    };
    for (const auto& [name, value] :
         {std::pair{"HYB_CUDA_CARVEOUT", "101"}, std::pair{"HYB_CUDA_EARLY_STARTS", "never"}}) {
      const ToolResult result = run(name, value);
      CHECK(result.exit_code == 2);
      CHECK(contains(result.err, name));
      CHECK(result.out == "");
    }
    CHECK(run("HYB_CUDA_CARVEOUT", "100").exit_code == 0);
    CHECK(run("HYB_CUDA_EARLY_STARTS", "").exit_code == 0);  // as if it were not set
  }

  TEST_CASE("a card that is present and not used is reported in one line, with the reason") {
    if (!has_namespaces()) {
      MESSAGE("no mount namespaces here: not tested");
      return;
    }
    const std::string line = "hyb: warning: the NVIDIA card is not used, the CPU is: ";
    for (const char* command : {"run demo -p hi -n 4", "bench demo -p 8 -n 0 -r 1 -o jsonl",
                                "verify demo --prompts 2 -n 2 --length 16"}) {
      CAPTURE(command);
      const ToolResult result = beside_a_card(std::string("$HYB ") + command, "0");
      CHECK(result.exit_code == 0);
      CHECK(result.out != "");
      CHECK(result.err.starts_with(line));
      CHECK(result.err.find('\n') == result.err.size() - 1);
    }
    CHECK(beside_a_card("$HYB run demo -p hi -n 4 --device cpu", "0").err == "");
    CHECK(beside_a_card("$HYB run demo -p hi -n 4", "").err == "");  // hidden from hyb on purpose
    const ToolResult doctor = beside_a_card("$HYB doctor", "0");
    CHECK(contains(doctor.out, "cpu, by --device auto: "));
    CHECK(doctor.err == "");
    if (!kernels::has_cuda) CHECK(contains(doctor.out, "built without CUDA"));
  }
}

}  // namespace surface_device_test
