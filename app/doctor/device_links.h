#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"

namespace hyb::app {

/// Processors that share a memory.
struct MemoryNode {
  int number;
  std::string processors;  ///< as Linux lists them: "0-31,64-95"
};

struct LinkedCard {
  std::string name;
  std::optional<int> node;  ///< the memory that is nearest to it; none: the machine does not say
};

/// Connection between two cards.
struct CardPair {
  int one, other;  ///< indices of cards
  std::string path;
  /// True if a card reads and writes the other's memory; nullopt if the driver does not say.
  std::optional<bool> is_direct = {};
};

/// Connections between the devices of this machine.
struct DeviceLinks {
  int sockets = 0;                ///< 0: the machine does not say
  std::vector<MemoryNode> nodes;  ///< empty: the machine does not say
  std::vector<LinkedCard> cards;  ///< empty: NVML is not there, or sees none
  std::vector<CardPair> links;    ///< every pair of cards once
};

/// The part of NVML's C interface that is about links, as its manual has it; null where a library
/// has no such function.
struct NvmlLinks {
  using Device = void*;
  struct PciPlace {
    char short_id[16];
    unsigned domain, bus, device, ids, subsystem_ids;
    char id[32];
  };
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*place)(Device, PciPlace*) = nullptr;
  int (*common_ancestor)(Device, Device, int*) = nullptr;
  int (*peer_status)(Device, Device, int, int*) = nullptr;
};

/// Examines the machine whose /sys is below `root`. Without `nvml` there are no cards.
DeviceLinks read_links(const NvmlLinks* nvml, const std::filesystem::path& root = "/");

/// Examines this machine, with its NVML where there is one.
DeviceLinks examine_links();

/// Rows of doctor's table, the last one what this means for --disaggregate.
std::vector<std::pair<std::string, std::string>> link_rows(const DeviceLinks& links);
Json links_json(const DeviceLinks& links);

}  // namespace hyb::app
