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

std::vector<std::uint32_t> logits_from(const Json& json, const std::string& source) {
  const auto fail = [&] {
    throw Error(ErrorKind::model, source + ": the outline has no list of logits");
  };
  const auto found = json.find("logits");
  if (found == json.end() || !found->is_array()) fail();
  std::vector<std::uint32_t> snapshots;
  for (const Json& number : *found) {
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() > 0xFFFFFFFF) fail();
    const auto snapshot = number.get<std::uint32_t>();
    if (!snapshots.empty() && snapshot <= snapshots.back()) fail();
    snapshots.push_back(snapshot);
  }
  return snapshots;
}

}  // namespace

Fingerprint layout_facts(const MemoryLayout& layout) {
  Fingerprint facts = {
      {"page_tokens", std::to_string(layout.page_tokens)},
      {"slot_bytes", std::to_string(layout.content_bytes(layout.slot_view()))},
      {"packed_bytes", std::to_string(layout.content_bytes(layout.packed_view()))}};
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
          {"units", outline.units},
          {"logits", outline.logits}};
}

SessionOutline session_outline_from(const Json& json, const std::string& source) {
  if (!json.is_object() || !json.contains("layout")) {
    throw Error(ErrorKind::model, source + ": the outline has no layout");
  }
  return {.layout = fingerprint_from(json["layout"], source),
          .sequences = count_from(json, "sequences", source),
          .snapshots = count_from(json, "snapshots", source),
          .units = count_from(json, "units", source),
          .logits = logits_from(json, source)};
}

}  // namespace hyb
