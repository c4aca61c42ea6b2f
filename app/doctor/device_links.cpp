#include "app/doctor/device_links.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/machine/nvml.h"
#include "core/base/strings.h"
#include "core/io/file.h"

namespace hyb::app {
namespace {

namespace fs = std::filesystem;

/// The numbered entries of a folder: 3 of "node3".
std::set<int> numbered(const fs::path& folder, std::string_view prefix) {
  std::set<int> numbers;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const auto number = parse_number<int>(std::string_view(name).substr(prefix.size()));
    if (number) numbers.insert(*number);
  }
  return numbers;
}

void read_processors(const fs::path& root, DeviceLinks& links) {
  const fs::path system = root / "sys/devices/system";
  for (const int number : numbered(system / "node", "node")) {
    const std::string processors =
        first_line(system / "node" / fmt::format("node{}", number) / "cpulist");
    if (!processors.empty()) links.nodes.push_back({number, processors});  // else memory alone
  }
  std::set<int> sockets;
  for (const int number : numbered(system / "cpu", "cpu")) {
    const auto socket = parse_number<int>(
        first_line(system / "cpu" / fmt::format("cpu{}", number) / "topology/physical_package_id"));
    if (socket && *socket >= 0) sockets.insert(*socket);
  }
  links.sockets = static_cast<int>(sockets.size());
}

constexpr int nvml_success = NvmlLibrary::success;
constexpr int peer_read = 0, peer_write = 1, peer_nvlink = 2;

/// The ways between two cards that share no NVLink, by what both are below.
struct Ancestor {
  int level;
  const char* text;
};
constexpr std::array<Ancestor, 6> ancestors = {{{0, "one board"},
                                                {10, "one PCIe switch"},
                                                {20, "several PCIe switches"},
                                                {30, "PCIe and one host bridge"},
                                                {40, "PCIe and host bridges of one NUMA node"},
                                                {50, "PCIe and the link between sockets"}}};

std::optional<bool> peer(const NvmlLinks& nvml, NvmlLinks::Device one, NvmlLinks::Device other,
                         int what) {
  int status = nvml_success;
  if (nvml.peer_status == nullptr || nvml.peer_status(one, other, what, &status) != nvml_success) {
    return std::nullopt;
  }
  return status == nvml_success;
}

CardPair link_of(const NvmlLinks& nvml, const std::vector<NvmlLinks::Device>& devices,
                 std::size_t one, std::size_t other) {
  CardPair link = {
      .one = static_cast<int>(one), .other = static_cast<int>(other), .path = "an unknown way"};
  const NvmlLinks::Device first = devices[one], second = devices[other];
  int level = 0;
  if (peer(nvml, first, second, peer_nvlink).value_or(false)) {
    link.path = "NVLink";
  } else if (nvml.common_ancestor != nullptr &&
             nvml.common_ancestor(first, second, &level) == nvml_success) {
    const auto known = std::find_if(ancestors.begin(), ancestors.end(),
                                    [&](const Ancestor& way) { return way.level == level; });
    if (known != ancestors.end()) link.path = known->text;
  }
  const auto reads = peer(nvml, first, second, peer_read);
  const auto writes = peer(nvml, first, second, peer_write);
  if (reads && writes) link.is_direct = *reads && *writes;
  return link;
}

std::optional<int> node_of(const NvmlLinks& nvml, NvmlLinks::Device device, const fs::path& root) {
  NvmlLinks::PciPlace place{};
  if (nvml.place == nullptr || nvml.place(device, &place) != nvml_success) return std::nullopt;
  const std::string name =
      fmt::format("{:04x}:{:02x}:{:02x}.0", place.domain, place.bus, place.device);
  const auto node =
      parse_number<int>(first_line(root / "sys/bus/pci/devices" / name / "numa_node"));
  return node && *node >= 0 ? node : std::nullopt;  // -1: the firmware does not say
}

void read_cards(const NvmlLinks& nvml, const fs::path& root, DeviceLinks& links) {
  unsigned count = 0;
  if (nvml.count == nullptr || nvml.device == nullptr || nvml.count(&count) != nvml_success) return;
  std::vector<NvmlLinks::Device> devices;
  for (unsigned i = 0; i < count; ++i) {
    NvmlLinks::Device device = nullptr;
    if (nvml.device(i, &device) != nvml_success) continue;
    std::array<char, 96> name{};
    const bool is_named =
        nvml.name != nullptr &&
        nvml.name(device, name.data(), static_cast<unsigned>(name.size() - 1)) == nvml_success;
    links.cards.push_back(
        {.name = is_named ? name.data() : "a card", .node = node_of(nvml, device, root)});
    devices.push_back(device);
  }
  for (std::size_t one = 0; one < devices.size(); ++one) {
    for (std::size_t other = one + 1; other < devices.size(); ++other) {
      links.links.push_back(link_of(nvml, devices, one, other));
    }
  }
}

NvmlLinks functions_of(const NvmlLibrary& nvml) {
  NvmlLinks table;
  nvml.find(table.count, "nvmlDeviceGetCount_v2");
  nvml.find(table.device, "nvmlDeviceGetHandleByIndex_v2");
  nvml.find(table.name, "nvmlDeviceGetName");
  nvml.find(table.place, "nvmlDeviceGetPciInfo_v3");
  nvml.find(table.common_ancestor, "nvmlDeviceGetTopologyCommonAncestor");
  nvml.find(table.peer_status, "nvmlDeviceGetP2PStatus");
  return table;
}

std::string processors_text(const DeviceLinks& links) {
  std::string text = links.sockets > 0 ? counted(links.sockets, "socket") : "sockets unknown";
  if (links.nodes.empty()) return text + ", NUMA nodes unknown";
  if (links.nodes.size() == 1) return text + ", one memory for all processors";
  for (const MemoryNode& node : links.nodes) {
    text += fmt::format("; NUMA node {}: processors {}", node.number, node.processors);
  }
  return text;
}

std::string direct_text(const CardPair& link) {
  if (!link.is_direct) return "whether copies go directly is unknown";
  return *link.is_direct ? "copies go directly" : "copies go through the machine's memory";
}

std::string lanes_text(const DeviceLinks& links) {
  std::string text =
      "--disaggregate divides the processors between prompts and answers, which use the same "
      "memory";
  if (links.nodes.size() > 1) {
    text += fmt::format(
        "; where they are of different NUMA nodes, one reads the other's: numactl "
        "--cpunodebind={0} --membind={0} hyb ... keeps all on one",
        links.nodes.front().number);
  }
  return text;
}

}  // namespace

DeviceLinks read_links(const NvmlLinks* nvml, const fs::path& root) {
  DeviceLinks links;
  read_processors(root, links);
  if (nvml != nullptr) read_cards(*nvml, root, links);
  return links;
}

DeviceLinks examine_links() {
  const NvmlLibrary nvml;
  if (!nvml.is_open()) return read_links(nullptr);
  const NvmlLinks functions = functions_of(nvml);
  return read_links(&functions);
}

std::vector<std::pair<std::string, std::string>> link_rows(const DeviceLinks& links) {
  std::vector<std::pair<std::string, std::string>> rows = {{"sockets", processors_text(links)}};
  for (std::size_t i = 0; i < links.cards.size(); ++i) {
    const LinkedCard& card = links.cards[i];
    rows.emplace_back(
        fmt::format("card {}", i),
        card.node ? fmt::format("{}, at NUMA node {}", card.name, *card.node) : card.name);
  }
  for (const CardPair& link : links.links) {
    rows.emplace_back(fmt::format("cards {} and {}", link.one, link.other),
                      fmt::format("linked by {}; {}", link.path, direct_text(link)));
  }
  rows.emplace_back("lanes", lanes_text(links));
  return rows;
}

Json links_json(const DeviceLinks& links) {
  Json nodes = Json::array(), cards = Json::array(), pairs = Json::array();
  for (const MemoryNode& node : links.nodes) {
    nodes.push_back({{"node", node.number}, {"processors", node.processors}});
  }
  for (const LinkedCard& card : links.cards) {
    cards.push_back({{"name", card.name}, {"node", card.node ? Json(*card.node) : Json()}});
  }
  for (const CardPair& link : links.links) {
    pairs.push_back({{"cards", {link.one, link.other}},
                     {"path", link.path},
                     {"is_direct", link.is_direct ? Json(*link.is_direct) : Json()}});
  }
  return {{"sockets", links.sockets}, {"nodes", nodes}, {"cards", cards}, {"pairs", pairs}};
}

}  // namespace hyb::app
