#include "core/memory/session_file.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/memory/session_sections.h"

namespace hyb {
namespace {

SessionText read_text_part(SectionReader& reader, const std::filesystem::path& path) {
  SessionText text;
  const std::string fingerprint = read_text(reader, SessionSection::fingerprint);
  text.fingerprint = fingerprint_from(parse_json(fingerprint, path.string()), path.string());
  text.app = read_text(reader, SessionSection::app);
  return text;
}

}  // namespace

void add_session_text(SectionWriter& writer, const SessionText& text) {
  add_text(writer, SessionSection::fingerprint, to_text(to_json(text.fingerprint)));
  add_text(writer, SessionSection::app, text.app);
}

void write_session(const std::filesystem::path& path, const SessionText& text) {
  SectionWriter writer(path, session_format);
  add_session_text(writer, text);
  writer.commit();
}

SessionReading read_session(const std::filesystem::path& path) {
  try {
    SectionReader reader(path, session_format, SectionReader::Size::any);
    return {.text = read_text_part(reader, path), .refused = {}};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::model) throw;
    return {.text = std::nullopt, .refused = error.what()};
  }
}

}  // namespace hyb
