#include "core/text/utf8_stream.h"

#include "core/text/utf8.h"

namespace hyb {

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  pending_.append(bytes);
  std::size_t at = 0;
  while (at < pending_.size()) {
    const Utf8Unit unit = read_utf8(pending_, at);
    if (unit.kind == Utf8Unit::Kind::incomplete) break;
    const bool good = unit.kind == Utf8Unit::Kind::character;
    out += good ? std::string_view(pending_).substr(at, unit.bytes) : replacement_character;
    at += unit.bytes;
  }
  pending_.erase(0, at);
}

void Utf8Stream::flush(std::string& out) {
  if (!pending_.empty()) out += replacement_character;
  pending_.clear();
}

}  // namespace hyb
