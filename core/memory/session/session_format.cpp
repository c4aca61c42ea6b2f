#include "core/memory/session/session_format.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/file.h"

namespace hyb {
namespace {

std::string value_of(const Fingerprint& fingerprint, const std::string& name) {
  const auto found = fingerprint.find(name);
  return found == fingerprint.end() ? "not given" : quote_name(found->second);
}

std::size_t count_from(const Json& json, const char* name, const std::string& source) {
  const auto found = json.find(name);
  // Sections are numbered with 32 bits.
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

std::uint64_t section_bytes_max(SessionSection kind) {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20;
  switch (kind) {
    case SessionSection::fingerprint:
    case SessionSection::outline:
      return mib;
    case SessionSection::app:
    case SessionSection::tokens:
    case SessionSection::snapshot:
    case SessionSection::logits:
      return 64 * mib;
    case SessionSection::unit:
      break;
  }
  return ~std::uint64_t{0};  // the layout says the size of a unit
}

void add(SectionWriter& writer, SessionSection kind, std::uint32_t number,
         std::span<const std::byte> bytes) {
  if (bytes.size() > section_bytes_max(kind)) {
    throw Error(ErrorKind::runtime, "session: a section of " + std::to_string(bytes.size()) +
                                        " bytes can't be saved, at most " +
                                        std::to_string(section_bytes_max(kind)));
  }
  writer.add(static_cast<std::uint32_t>(kind), number, bytes);
}

}  // namespace

std::string difference(const Fingerprint& here, const Fingerprint& there) {
  const auto text = [&](const std::string& name) {
    return quote_name(name) + " is " + value_of(here, name) + " here and " + value_of(there, name) +
           " there";
  };
  for (const auto& [name, value] : here) {
    const auto other = there.find(name);
    if (other == there.end() || other->second != value) return text(name);
  }
  for (const auto& [name, value] : there) {
    if (!here.contains(name)) return text(name);
  }
  return {};
}

Json to_json(const Fingerprint& fingerprint) {
  Json json = Json::object();
  for (const auto& [name, value] : fingerprint) json[name] = value;
  return json;
}

Fingerprint fingerprint_from(const Json& json, const std::string& source) {
  if (!json.is_object()) throw Error(ErrorKind::model, source + ": the fingerprint is no object");
  Fingerprint fingerprint;
  for (const auto& [name, value] : json.items()) {
    if (!value.is_string()) {
      throw Error(ErrorKind::model,
                  source + ": fingerprint: " + quote_name(name) + " is no string");
    }
    fingerprint[name] = value.get<std::string>();
  }
  return fingerprint;
}

Fingerprint layout_facts(const MemoryLayout& layout,
                         const std::function<std::size_t(ViewId)>& bytes_of) {
  Fingerprint facts = {{"page_tokens", std::to_string(layout.page_tokens)},
                       {"slot_bytes", std::to_string(bytes_of(layout.slot_view()))},
                       {"packed_bytes", std::to_string(bytes_of(layout.packed_view()))}};
  for (std::size_t i = 0; i < layout.groups.size(); ++i) {
    facts["group_" + std::to_string(i)] =
        std::string(layout.groups[i].kind->name()) + " " +
        std::to_string(bytes_of(ViewId{static_cast<std::int32_t>(i)}));
  }
  return facts;
}

Json to_json(const SessionOutline& outline) {
  Json json = {{"layout", to_json(outline.layout)},
               {"sequences", outline.sequences},
               {"snapshots", outline.snapshots},
               {"units", outline.units},
               {"logits", outline.logits}};
  if (outline.answer_layout) json["answer_layout"] = to_json(*outline.answer_layout);
  return json;
}

SessionOutline session_outline_from(const Json& json, const std::string& source) {
  if (!json.is_object() || !json.contains("layout")) {
    throw Error(ErrorKind::model, source + ": the outline has no layout");
  }
  const auto answer_layout = json.find("answer_layout");
  return {.layout = fingerprint_from(json["layout"], source),
          .answer_layout = answer_layout == json.end()
                               ? std::nullopt
                               : std::optional(fingerprint_from(*answer_layout, source)),
          .sequences = count_from(json, "sequences", source),
          .snapshots = count_from(json, "snapshots", source),
          .units = count_from(json, "units", source),
          .logits = logits_from(json, source)};
}

void add_text(SectionWriter& writer, SessionSection kind, std::string_view text) {
  add(writer, kind, 0, std::as_bytes(std::span(text)));
}

void add_numbers(SectionWriter& writer, SessionSection kind, std::uint32_t number,
                 std::span<const std::uint32_t> numbers) {
  add(writer, kind, number, std::as_bytes(numbers));
}

SectionHead expect_section(SectionReader& reader, SessionSection kind, std::uint32_t number) {
  const std::optional<SectionHead> head = reader.next();
  if (!head || head->kind != static_cast<std::uint32_t>(kind) || head->number != number) {
    reader.fail("is damaged: its sections are not those of a session");
  }
  if (head->length > section_bytes_max(kind))
    reader.fail("has a section that is larger than it may be");
  return *head;
}

std::string read_text(SectionReader& reader, SessionSection kind) {
  std::string text(static_cast<std::size_t>(expect_section(reader, kind, 0).length), '\0');
  reader.read(std::as_writable_bytes(std::span(text)));
  return text;
}

std::vector<std::uint32_t> read_numbers(SectionReader& reader, SessionSection kind,
                                        std::uint32_t number) {
  const SectionHead head = expect_section(reader, kind, number);
  if (head.length % sizeof(std::uint32_t) != 0) reader.fail("is damaged: half a number");
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(head.length) / sizeof(std::uint32_t));
  reader.read(std::as_writable_bytes(std::span(numbers)));
  return numbers;
}

}  // namespace hyb
