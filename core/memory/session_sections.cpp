#include "core/memory/session_sections.h"

#include <optional>

#include "core/base/error.h"

namespace hyb {
namespace {

std::uint64_t bytes_max(SessionSection kind) {
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
  return ~std::uint64_t{0};  // a unit has the size that the layout says
}

void add(SectionWriter& writer, SessionSection kind, std::uint32_t number,
         std::span<const std::byte> bytes) {
  if (bytes.size() > bytes_max(kind)) {
    throw Error(ErrorKind::runtime, "session: a section of " + std::to_string(bytes.size()) +
                                        " bytes can't be saved, at most " +
                                        std::to_string(bytes_max(kind)));
  }
  writer.add(static_cast<std::uint32_t>(kind), number, bytes);
}

}  // namespace

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
  if (head->length > bytes_max(kind)) reader.fail("has a section that is larger than it may be");
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
