#include "core/text/jinja/marked_text.h"

#include <algorithm>

#include "core/text/jinja/meter.h"
#include "core/text/jinja/unicode.h"

namespace hyb::jinja {

void MarkedBuffer::append(Meter& meter, std::string_view bytes, TextSource source) {
  if (bytes.empty()) return;
  meter.hold(bytes.size());
  meter.step_bytes(bytes.size());
  ascii_ = ascii_ && is_ascii(bytes);
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().source == source) {
    runs_.back().end = size();
    return;
  }
  meter.hold(sizeof(Run));
  runs_.push_back({size(), source});
}

std::size_t MarkedBuffer::run_at(std::uint32_t at) const {
  const auto found =
      std::upper_bound(runs_.begin(), runs_.end(), at,
                       [](std::uint32_t byte, const Run& run) { return byte < run.end; });
  return static_cast<std::size_t>(found - runs_.begin());
}

void append(Meter& meter, MarkedBuffer& buffer, const Text& text) {
  if (text.buffer() != &buffer) {
    text.for_each_run(
        [&](std::string_view bytes, TextSource source) { buffer.append(meter, bytes, source); });
    return;
  }
  // Growing moves the bytes that are being read, so they are copied aside.
  struct Piece {
    std::string bytes;
    TextSource source;
  };
  meter.expect(text.size());
  std::vector<Piece> pieces;
  text.for_each_run([&](std::string_view bytes, TextSource source) {
    pieces.push_back({std::string(bytes), source});
  });
  for (const Piece& piece : pieces) buffer.append(meter, piece.bytes, piece.source);
}

std::size_t character_count(const Text& text) {
  return text.surely_ascii() ? text.size() : count_characters(text.view());
}

std::size_t byte_offset(const Text& text, std::size_t character) {
  if (text.surely_ascii()) return character;
  const std::string_view view = text.view();
  std::size_t at = 0;
  while (character-- > 0 && at < view.size()) at += character_bytes(view, at);
  return at;
}

}  // namespace hyb::jinja
