#include "app/doctor/device_links.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>

#include <nlohmann/json.hpp>

#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace device_links_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

/// Three cards: 0 and 1 share NVLink, 2 is at the other socket, out of their reach.
std::uintptr_t number(NvmlLinks::Device device) {
  return reinterpret_cast<std::uintptr_t>(device) - 1;
}

NvmlLinks some_nvml() {
  NvmlLinks nvml;
  nvml.count = [](unsigned* count) {
    *count = 3;
    return 0;
  };
  nvml.device = [](unsigned i, NvmlLinks::Device* device) {
    *device = reinterpret_cast<NvmlLinks::Device>(std::uintptr_t{i} + 1);
    return 0;
  };
  nvml.name = [](NvmlLinks::Device, char* name, unsigned) {
    std::strcpy(name, "NVIDIA H200");
    return 0;
  };
  nvml.place = [](NvmlLinks::Device device, NvmlLinks::PciPlace* place) {
    place->bus = 0x1b + static_cast<unsigned>(number(device));
    return 0;
  };
  nvml.common_ancestor = [](NvmlLinks::Device one, NvmlLinks::Device other, int* level) {
    *level = number(one) == 2 || number(other) == 2 ? 50 : 30;
    return 0;
  };
  nvml.peer_status = [](NvmlLinks::Device one, NvmlLinks::Device other, int, int* status) {
    *status = number(one) == 2 || number(other) == 2 ? 3 : 0;
    return 0;
  };
  return nvml;
}

void write_machine(const TemporaryFolder& root) {
  root.write("sys/devices/system/node/node0/cpulist", "0-1\n");
  root.write("sys/devices/system/node/node1/cpulist", "2-3\n");
  root.write("sys/devices/system/node/node2/cpulist", "\n");  // memory alone
  root.write("sys/devices/system/node/possible", "0-2\n");
  for (const int cpu : {0, 1, 2, 3}) {
    root.write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/physical_package_id",
               cpu < 2 ? "0\n" : "1\n");
  }
  root.write("sys/devices/system/cpu/cpufreq/x", "");
  root.write("sys/bus/pci/devices/0000:1b:00.0/numa_node", "0\n");
  root.write("sys/bus/pci/devices/0000:1c:00.0/numa_node", "-1\n");
  root.write("sys/bus/pci/devices/0000:1d:00.0/numa_node", "1\n");
}

std::string text_of(const DeviceLinks& links) {
  std::string all;
  for (const auto& [what, text] : link_rows(links)) all += what + ": " + text + "\n";
  return all;
}

}  // namespace

TEST_SUITE("app/doctor/device_links") {
  TEST_CASE("sockets, nodes, cards and what is between them") {
    const TemporaryFolder root;
    write_machine(root);
    const NvmlLinks nvml = some_nvml();
    const DeviceLinks links = read_links(&nvml, root.path());
    const std::string text = text_of(links);
    for (const char* const row :
         {"sockets: 2 sockets; NUMA node 0: processors 0-1; NUMA node 1: processors 2-3\n",
          "card 0: NVIDIA H200, at NUMA node 0\n", "card 1: NVIDIA H200\n",
          "card 2: NVIDIA H200, at NUMA node 1\n",
          "cards 0 and 1: linked by NVLink; copies go directly\n",
          "cards 0 and 2: linked by PCIe and the link between sockets; copies go through the "
          "machine's memory\n",
          "cards 1 and 2: linked by PCIe and the link between sockets; ",
          "lanes: --disaggregate divides the processors", "numactl --cpunodebind=0 --membind=0"}) {
      CAPTURE(row);
      CHECK(contains(text, row));
    }
    const Json json = links_json(links);
    CHECK(json["sockets"] == 2);
    CHECK(json["nodes"].size() == 2);
    CHECK(json["cards"][1]["node"].is_null());
    CHECK(json["cards"][2]["node"] == 1);
    REQUIRE(json["pairs"].size() == 3);
    CHECK(json["pairs"][0]["is_direct"] == true);
    CHECK(json["pairs"][2] == Json({{"cards", {1, 2}},
                                    {"path", "PCIe and the link between sockets"},
                                    {"is_direct", false}}));
  }

  TEST_CASE("a library without these functions, and cards that share a bridge alone") {
    const TemporaryFolder root;
    NvmlLinks nvml = some_nvml();
    nvml.peer_status = nullptr;
    nvml.name = nullptr;
    nvml.place = nullptr;
    std::string text = text_of(read_links(&nvml, root.path()));
    CHECK(contains(text, "card 0: a card\n"));
    CHECK(contains(text,
                   "cards 0 and 1: linked by PCIe and one host bridge; whether copies go "
                   "directly is unknown\n"));
    nvml.common_ancestor = [](NvmlLinks::Device, NvmlLinks::Device, int*) { return 3; };
    CHECK(contains(text_of(read_links(&nvml, root.path())), "linked by an unknown way; "));
    nvml.count = nullptr;
    CHECK(read_links(&nvml, root.path()).cards.empty());
  }

  TEST_CASE("a machine that says nothing, and one with a single memory") {
    const TemporaryFolder root;
    const DeviceLinks nothing = read_links(nullptr, root.path());
    CHECK(nothing.cards.empty());
    CHECK(contains(text_of(nothing), "sockets: sockets unknown, NUMA nodes unknown\n"));
    CHECK_FALSE(contains(text_of(nothing), "numactl"));
    root.write("sys/devices/system/node/node0/cpulist", "0-1\n");
    root.write("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n");
    CHECK(contains(text_of(read_links(nullptr, root.path())),
                   "sockets: 1 socket, one memory for all processors\n"));
  }
}

}  // namespace device_links_test
