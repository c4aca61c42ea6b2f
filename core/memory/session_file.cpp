#include "core/memory/session_file.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/error.h"
#include "core/io/section_file.h"

namespace hyb {
namespace {

constexpr SectionFormat format{.magic = {'H', 'Y', 'B', 'S', 'E', 'S', 'S', '\n'}, .version = 1};
constexpr std::uint64_t fingerprint_bytes_max = std::uint64_t{1} << 20;
constexpr std::uint64_t app_bytes_max = std::uint64_t{64} << 20;

/// Kinds of sections, in the order of the file. Numbers of kinds are never used again.
enum class Section : std::uint32_t { fingerprint = 1, app = 2 };

void add_text(SectionWriter& writer, Section kind, std::string_view text, std::uint64_t bytes_max) {
  if (text.size() > bytes_max) {
    throw Error(ErrorKind::runtime, "session: " + std::to_string(text.size()) +
                                        " bytes of text, at most " + std::to_string(bytes_max) +
                                        " can be saved");
  }
  writer.add(static_cast<std::uint32_t>(kind), 0, std::as_bytes(std::span(text)));
}

std::string read_text(SectionReader& reader, Section kind, std::uint64_t bytes_max) {
  const std::optional<SectionHead> head = reader.next();
  if (!head || head->kind != static_cast<std::uint32_t>(kind) || head->number != 0) {
    reader.fail("is damaged: its sections are not those of a session");
  }
  if (head->length > bytes_max) reader.fail("has more text than a session may have");
  std::string text(static_cast<std::size_t>(head->length), '\0');
  reader.read(std::as_writable_bytes(std::span(text)));
  return text;
}

SessionText read_text(SectionReader& reader, const std::filesystem::path& path) {
  SessionText text;
  const std::string fingerprint = read_text(reader, Section::fingerprint, fingerprint_bytes_max);
  text.fingerprint = fingerprint_from(parse_json(fingerprint, path.string()), path.string());
  text.app = read_text(reader, Section::app, app_bytes_max);
  return text;
}

}  // namespace

void write_session(const std::filesystem::path& path, const SessionText& text) {
  SectionWriter writer(path, format);
  add_text(writer, Section::fingerprint, to_text(to_json(text.fingerprint)), fingerprint_bytes_max);
  add_text(writer, Section::app, text.app, app_bytes_max);
  writer.commit();
}

SessionReading read_session(const std::filesystem::path& path) {
  try {
    SectionReader reader(path, format);
    return {.text = read_text(reader, path), .refused = {}};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::model) throw;
    return {.text = std::nullopt, .refused = error.what()};
  }
}

}  // namespace hyb
