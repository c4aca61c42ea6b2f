#include "core/memory/session_memory.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/memory/session_outline.h"
#include "core/memory/session_sections.h"

namespace hyb {
namespace {

/// What goes into the file, in its order.
struct Selection {
  struct Entry {
    const Snapshot* snapshot;
    std::uint32_t sequence;
    std::vector<std::uint32_t> units;  // numbers in the file
  };
  std::vector<Entry> entries;
  std::vector<CheckpointUnit> units;
  SessionSaved saved;
};

/// Every snapshot on the way of a sequence, once, the deepest first.
std::vector<Selection::Entry> snapshots_of(const PrefixCache& cache,
                                           std::span<const std::vector<TokenId>> sequences) {
  std::vector<Selection::Entry> entries;
  std::set<const Snapshot*> seen;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    for (const Snapshot* snapshot : cache.tree().on_the_way(sequences[i])) {
      if (!seen.insert(snapshot).second) continue;
      entries.push_back(
          {.snapshot = snapshot, .sequence = static_cast<std::uint32_t>(i), .units = {}});
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.snapshot->checkpoint.length() > b.snapshot->checkpoint.length();
  });
  return entries;
}

/// Numbers the units in the order in which they are first needed.
Selection select(const MemoryLayout& layout, std::vector<Selection::Entry> entries,
                 std::uint64_t bytes_max) {
  Selection selection;
  std::map<std::pair<ViewId, std::int32_t>, std::uint32_t> numbers;
  for (Selection::Entry& entry : entries) {
    const std::vector<CheckpointUnit> units = units_of(entry.snapshot->checkpoint, layout);
    std::uint64_t bytes = selection.saved.bytes + entry.snapshot->logits.size() * sizeof(float);
    for (const CheckpointUnit& unit : units) {
      if (!numbers.contains({unit.view, unit.unit})) bytes += layout.content_bytes(unit.view);
    }
    if (bytes > bytes_max) {
      ++selection.saved.left_out;
      continue;
    }
    for (const CheckpointUnit& unit : units) {
      const auto next = static_cast<std::uint32_t>(selection.units.size());
      const auto [number, is_new] = numbers.try_emplace({unit.view, unit.unit}, next);
      if (is_new) selection.units.push_back(unit);
      entry.units.push_back(number->second);
    }
    selection.saved.bytes = bytes;
    selection.saved.length = std::max(selection.saved.length, entry.snapshot->checkpoint.length());
    ++selection.saved.snapshots;
    selection.entries.push_back(std::move(entry));
  }
  return selection;
}

void add_tokens(SectionWriter& writer, std::uint32_t number, std::span<const TokenId> tokens) {
  std::vector<std::uint32_t> numbers;
  numbers.reserve(tokens.size());
  for (const TokenId token : tokens) numbers.push_back(static_cast<std::uint32_t>(index(token)));
  add_numbers(writer, SessionSection::tokens, number, numbers);
}

void add_snapshot(SectionWriter& writer, std::uint32_t number, const Selection::Entry& entry) {
  const Checkpoint& checkpoint = entry.snapshot->checkpoint;
  const Precision precision = checkpoint.packed() != no_packed ? Precision::int8 : Precision::exact;
  std::vector<std::uint32_t> numbers = {
      entry.sequence, static_cast<std::uint32_t>(checkpoint.length()),
      static_cast<std::uint32_t>(precision), static_cast<std::uint32_t>(entry.snapshot->place)};
  numbers.insert(numbers.end(), entry.units.begin(), entry.units.end());
  add_numbers(writer, SessionSection::snapshot, number, numbers);
}

std::vector<std::uint32_t> with_logits(const Selection& selection) {
  std::vector<std::uint32_t> numbers;
  for (std::size_t i = 0; i < selection.entries.size(); ++i) {
    if (selection.entries[i].snapshot->logits.empty()) continue;
    numbers.push_back(static_cast<std::uint32_t>(i));
  }
  return numbers;
}

void add_units(SectionWriter& writer, SnapshotCarrier& carrier,
               std::span<const CheckpointUnit> units) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < units.size(); ++i) {
    bytes.resize(carrier.layout().unit_bytes(units[i].view));
    carrier.read(units[i], bytes);
    writer.add(static_cast<std::uint32_t>(SessionSection::unit), static_cast<std::uint32_t>(i),
               std::span(bytes).first(carrier.layout().content_bytes(units[i].view)));
  }
}

}  // namespace

SessionSaved write_session(const std::filesystem::path& path, const SessionText& text,
                           SnapshotCarrier& carrier,
                           std::span<const std::vector<TokenId>> sequences,
                           std::uint64_t bytes_max) {
  carrier.settle();
  const Selection selection =
      select(carrier.layout(), snapshots_of(carrier.cache(), sequences), bytes_max);
  SectionWriter writer(path, session_format);
  add_session_text(writer, text);
  add_text(writer, SessionSection::outline,
           to_text(to_json(SessionOutline{.layout = layout_facts(carrier.layout()),
                                          .sequences = sequences.size(),
                                          .snapshots = selection.entries.size(),
                                          .units = selection.units.size(),
                                          .logits = with_logits(selection)})));
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    add_tokens(writer, static_cast<std::uint32_t>(i), sequences[i]);
  }
  for (std::size_t i = 0; i < selection.entries.size(); ++i) {
    add_snapshot(writer, static_cast<std::uint32_t>(i), selection.entries[i]);
  }
  for (const std::uint32_t i : with_logits(selection)) {
    writer.add(static_cast<std::uint32_t>(SessionSection::logits), i,
               std::as_bytes(std::span(selection.entries[i].snapshot->logits)));
  }
  add_units(writer, carrier, selection.units);
  writer.commit();
  return selection.saved;
}

}  // namespace hyb
