#include "core/memory/session/session_format.h"

#include <cstring>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/file.h"

namespace hyb {
namespace {

std::string value_of(const Fingerprint& fingerprint, const std::string& name) {
  const auto found = fingerprint.find(name);
  return found == fingerprint.end() ? "not given" : quote_name(found->second);
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

SessionOutline outline_of(const SnapshotIo& snapshot_io) {
  const MemoryLayout& layout = snapshot_io.layout();
  SessionOutline outline{
      .layout = layout_facts(layout, [&](ViewId view) { return layout.content_bytes(view); })};
  Fingerprint answers =
      layout_facts(layout, [&](ViewId view) { return snapshot_io.answer_bytes(view); });
  if (answers != outline.layout) outline.answer_layout = std::move(answers);
  return outline;
}

Json to_json(const SessionOutline& outline) {
  Json json = {{"layout", to_json(outline.layout)}};
  if (outline.answer_layout) json["answer_layout"] = to_json(*outline.answer_layout);
  return json;
}

SessionOutline session_outline_from(const Json& json, const std::string& source) {
  if (!json.is_object() || !json.contains("layout")) {
    throw Error(ErrorKind::model, source + ": the outline has no layout");
  }
  SessionOutline outline{.layout = fingerprint_from(json["layout"], source)};
  const auto answers = json.find("answer_layout");
  if (answers != json.end()) outline.answer_layout = fingerprint_from(*answers, source);
  return outline;
}

std::vector<UnitKey> unit_keys(const MemoryLayout& layout, std::int32_t length,
                               Precision precision) {
  std::vector<UnitKey> keys;
  for (std::int32_t group = 0; group < layout.group_count(); ++group) {
    for (const std::int32_t page : held_pages(layout, group, length)) {
      keys.push_back({group, page, (page + 1) * layout.page_tokens <= length ? 0 : length});
    }
  }
  if (layout.has_slots()) {
    const bool is_exact = precision == Precision::exact;
    keys.push_back({index(is_exact ? layout.slot_view() : layout.packed_view()), 0, length});
  }
  return keys;
}

namespace {

constexpr const char* other_sections = "is damaged: its sections are not those of a session";

std::string text_of(const SectionReader& reader, const SectionHead& head) {
  std::string text(static_cast<std::size_t>(head.length), '\0');
  reader.read(std::as_writable_bytes(std::span(text)));
  return text;
}

/// Takes numbers from the front of a section.
class Numbers {
 public:
  Numbers(const SectionReader& reader, const SectionHead& head)
      : reader_(&reader), text_(text_of(reader, head)) {}

  bool has_more() const { return at_ < text_.size(); }
  /// One that is at most `max`.
  std::uint32_t next(std::size_t max = 0xFFFFFFFF) {
    std::uint32_t number = 0;
    if (text_.size() - at_ < sizeof(number)) fail();
    std::memcpy(&number, text_.data() + at_, sizeof(number));
    at_ += sizeof(number);
    if (number > max) fail();
    return number;
  }
  std::int32_t next_length(std::size_t max) { return static_cast<std::int32_t>(next(max)); }
  [[noreturn]] void fail() const {
    reader_->fail("is damaged: what it says of its memory can't be");
  }

 private:
  const SectionReader* reader_;
  std::string text_;
  std::size_t at_ = 0;
};

void read_memory(const SectionReader& reader, const SectionHead& head, SessionContent& content) {
  constexpr std::size_t int32_max = 0x7FFFFFFF;
  Numbers numbers(reader, head);
  content.sequence.resize(numbers.next(content.sequence.size()));
  for (std::uint32_t left = numbers.next(); left > 0; --left) {
    content.sequence.push_back(TokenId{static_cast<std::int32_t>(numbers.next())});
  }
  content.snapshots.clear();
  for (std::uint32_t left = numbers.next(snapshots_max); left > 0; --left) {
    const std::int32_t length = numbers.next_length(content.sequence.size());
    const bool is_known = !content.snapshots.empty() && content.snapshots[0].length == length;
    if (length == 0 || is_known) numbers.fail();
    const Precision precision{static_cast<std::uint8_t>(numbers.next(1))};
    const SnapshotPlace place{static_cast<std::uint8_t>(numbers.next(snapshot_places - 1))};
    content.snapshots.push_back({length, precision, place});
  }
  content.units.clear();
  while (numbers.has_more()) {
    const std::int32_t view = numbers.next_length(int32_max), page = numbers.next_length(int32_max);
    const UnitKey key = {view, page, numbers.next_length(int32_max)};
    SessionContent::Unit& unit = content.units[key];
    unit.number = numbers.next();
    if (unit.number >= content.places.size()) numbers.fail();
    unit.sum = numbers.next();
    unit.sum |= std::uint64_t{numbers.next()} << 32;
  }
}

/// Reads all sections into `content`.
void read_sections(SectionReader& reader, SessionContent& content) {
  std::uint64_t draft_bytes = 0;
  SessionText& text = content.text;
  text.is_older = reader.is_older();
  for (bool is_first = true; const std::optional<SectionHead> head = reader.next();
       is_first = false) {
    const auto kind = static_cast<SessionSection>(head->kind & ~open_section);
    if (is_first != (kind == SessionSection::fingerprint) ||
        (head->kind >= open_section) != (kind == SessionSection::unit)) {
      reader.fail(other_sections);
    }
    if (kind == SessionSection::fingerprint) {
      text.fingerprint =
          fingerprint_from(parse_json(text_of(reader, *head), reader.path()), reader.path());
    } else if (kind == SessionSection::app || kind == SessionSection::draft) {
      const bool is_draft = kind == SessionSection::draft;
      std::string read = text_of(reader, *head);
      if (!is_draft) text.app.resize(text.app.size() - text.drafts);
      text.drafts = is_draft ? text.drafts + 1 : 0;
      draft_bytes = is_draft ? draft_bytes + head->length : 0;
      content.text_bytes += is_draft ? 0 : head->length;
      if (content.text_bytes + draft_bytes > text_bytes_max) reader.fail("has too much text");
      text.app.push_back(std::move(read));
      if (text.is_older) return;  // nothing of its memory fits this version
    } else if (kind == SessionSection::outline) {
      content.outline = text_of(reader, *head);
      content.sequence.clear();
      content.snapshots.clear();
      content.units.clear();
    } else if (kind == SessionSection::unit && head->number == content.places.size()) {
      content.places.push_back({reader.payload_begin(), head->length});
    } else if (kind == SessionSection::memory) {
      read_memory(reader, *head, content);
    } else {
      reader.fail(other_sections);
    }
  }
}

}  // namespace

SessionContent read_content(SectionReader& reader, Damage damage) {
  SessionContent content;
  try {
    read_sections(reader, content);
  } catch (const Error& error) {
    if (damage == Damage::refused || content.text.app.empty()) throw;
    content.text.damage = error.what();
  }
  if (content.text.app.empty()) reader.fail("is damaged: it has no text");
  content.end = reader.end();
  return content;
}

}  // namespace hyb
