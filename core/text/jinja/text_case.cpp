// The case mappings of text_functions.h.
#include <string_view>

#include "core/text/jinja/runtime.h"
#include "core/text/jinja/text_functions.h"
#include "core/text/jinja/unicode.h"

namespace hyb::jinja {
namespace {

/// Rewrites character by character; `rewrite(out, character)` may remember what came before.
template <typename Rewrite>
Text map_characters(Runtime& runtime, const Text& text, Rewrite rewrite) {
  MarkedBuffer& out = runtime.new_buffer();
  text.for_each_run([&](std::string_view bytes, TextSource source) {
    std::string mapped;
    mapped.reserve(bytes.size());
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = character_bytes(bytes, at);
      const char32_t c = decode_character(bytes, at);
      // A byte that is no character stays as it is.
      if (c == 0xFFFD && size == 1)
        mapped += bytes[at];
      else
        rewrite(mapped, c);
      at += size;
    }
    out.append(runtime.meter(), mapped, source);
  });
  return Runtime::whole(out);
}

bool begins_word(char32_t c) {
  return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

}  // namespace

Text upper(Runtime& runtime, const Text& text) {
  return map_characters(runtime, text, append_upper);
}

Text lower(Runtime& runtime, const Text& text) {
  return map_characters(runtime, text, append_lower);
}

Text swap_case(Runtime& runtime, const Text& text) {
  return map_characters(runtime, text, [](std::string& out, char32_t c) {
    if (is_upper_case(c))
      append_lower(out, c);
    else
      append_upper(out, c);
  });
}

Text capitalize(Runtime& runtime, const Text& text) {
  bool first = true;
  return map_characters(runtime, text, [&](std::string& out, char32_t c) {
    if (first)
      append_title(out, c);
    else
      append_lower(out, c);
    first = false;
  });
}

Text title(Runtime& runtime, const Text& text) {
  bool inside = false;
  return map_characters(runtime, text, [&](std::string& out, char32_t c) {
    if (inside)
      append_lower(out, c);
    else
      append_title(out, c);
    inside = is_upper_case(c) || is_lower_case(c);
  });
}

Text title_words(Runtime& runtime, const Text& text) {
  bool first = true;
  return map_characters(runtime, text, [&](std::string& out, char32_t c) {
    if (first)
      append_upper(out, c);
    else
      append_lower(out, c);
    first = begins_word(c);
  });
}

}  // namespace hyb::jinja
