#include "core/memory/session_outline.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace hyb {
namespace {

std::size_t count_from(const Json& json, const char* name, const std::string& source) {
  const auto found = json.find(name);
  // The sections are numbered with 32 bits.
  if (found == json.end() || !found->is_number_unsigned() ||
      found->get<std::uint64_t>() > 0xFFFFFFFF) {
    throw Error(ErrorKind::model, source + ": the outline has no count of " + name);
  }
  return found->get<std::size_t>();
}

}  // namespace

Fingerprint layout_facts(const MemoryLayout& layout) {
  Fingerprint facts = {{"page_tokens", std::to_string(layout.page_tokens)},
                       {"slot_bytes", std::to_string(layout.slots.bytes)},
                       {"packed_bytes", std::to_string(layout.packed.bytes)}};
  for (std::size_t i = 0; i < layout.groups.size(); ++i) {
    facts["group_" + std::to_string(i)] = std::string(layout.groups[i].kind->name()) + " " +
                                          std::to_string(layout.groups[i].page_bytes);
  }
  return facts;
}

Json to_json(const SessionOutline& outline) {
  return {{"layout", to_json(outline.layout)},
          {"sequences", outline.sequences},
          {"snapshots", outline.snapshots},
          {"units", outline.units}};
}

SessionOutline session_outline_from(const Json& json, const std::string& source) {
  if (!json.is_object() || !json.contains("layout")) {
    throw Error(ErrorKind::model, source + ": the outline has no layout");
  }
  return {.layout = fingerprint_from(json["layout"], source),
          .sequences = count_from(json, "sequences", source),
          .snapshots = count_from(json, "snapshots", source),
          .units = count_from(json, "units", source)};
}

}  // namespace hyb
