#include "core/text/jinja/text_functions.h"

#include <algorithm>
#include <string_view>

#include "core/text/jinja/runtime.h"
#include "core/text/jinja/unicode.h"
#include "core/text/jinja/value.h"

namespace hyb::jinja {
namespace {

/// Start of the character that ends at byte `end`.
std::size_t previous_character(std::string_view view, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<unsigned char>(view[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  return character_bytes(view, begin) == end - begin ? begin : end - 1;
}

class Splitter {
 public:
  Splitter(Runtime& runtime, const Text& text, std::int64_t splits)
      : runtime_(runtime),
        text_(text),
        view_(text.view()),
        left_(splits),
        out_(runtime.new_list()) {}

  List& at_spaces() {
    std::size_t at = skip(0, true);
    while (at < view_.size()) {
      if (left_ == 0) {
        add(at, view_.size());
        break;
      }
      const std::size_t end = skip(at, false);
      add(at, end);
      at = skip(end, true);
      --left_;
    }
    return out_;
  }

  List& at_spaces_from_right() {
    std::size_t end = skip_back(view_.size(), true);
    while (end > 0) {
      if (left_ == 0) {
        add(0, end);
        break;
      }
      const std::size_t begin = skip_back(end, false);
      add(begin, end);
      end = skip_back(begin, true);
      --left_;
    }
    return reversed();
  }

  List& at(std::string_view separator) {
    std::size_t begin = 0;
    while (left_ != 0) {
      const std::size_t found = find_first(view_, separator, begin);
      if (found == std::string_view::npos) break;
      add(begin, found);
      begin = found + separator.size();
      --left_;
    }
    add(begin, view_.size());
    return out_;
  }

  List& at_from_right(std::string_view separator) {
    std::size_t end = view_.size();
    while (left_ != 0) {
      runtime_.meter().step_bytes(separator.size());
      const std::size_t found = find_last(view_.substr(0, end), separator);
      if (found == std::string_view::npos) break;
      add(found + separator.size(), end);
      end = found;
      --left_;
    }
    add(0, end);
    return reversed();
  }

 private:
  bool space_at(std::size_t at) const { return is_space(decode_character(view_, at)); }

  std::size_t skip(std::size_t at, bool spaces) const {
    while (at < view_.size() && space_at(at) == spaces) at += character_bytes(view_, at);
    return at;
  }

  std::size_t skip_back(std::size_t end, bool spaces) const {
    while (end > 0) {
      const std::size_t begin = previous_character(view_, end);
      if (space_at(begin) != spaces) break;
      end = begin;
    }
    return end;
  }

  void add(std::size_t begin, std::size_t end) {
    runtime_.push(out_, Value(text_.slice(begin, end)));
  }

  List& reversed() {
    std::reverse(out_.items.begin(), out_.items.end());
    return out_;
  }

  Runtime& runtime_;
  Text text_;
  std::string_view view_;
  std::int64_t left_;
  List& out_;
};

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool holds(std::string_view characters, std::string_view character) {
  return characters.find(character) != std::string_view::npos;
}

}  // namespace

Text strip(Runtime& runtime, const Text& text, std::optional<Text> characters, StripEnds ends) {
  const std::string_view view = text.view();
  const auto is_stripped = [&](std::size_t begin, std::size_t end) {
    if (!characters) return is_space(decode_character(view, begin));
    runtime.meter().step_bytes(characters->size());
    return holds(characters->view(), view.substr(begin, end - begin));
  };
  std::size_t begin = 0;
  while (ends.left && begin < view.size()) {
    const std::size_t next = begin + character_bytes(view, begin);
    if (!is_stripped(begin, next)) break;
    begin = next;
  }
  std::size_t end = view.size();
  while (ends.right && end > begin) {
    const std::size_t previous = previous_character(view, end);
    if (!is_stripped(previous, end)) break;
    end = previous;
  }
  runtime.meter().step_bytes(view.size() - (end - begin));
  return text.slice(begin, end);
}

Text replace(Runtime& runtime, const Text& text, const Replacement& replacement) {
  const std::string_view view = text.view();
  const std::string_view old = replacement.old.view();
  std::int64_t left = replacement.count;
  runtime.meter().step_bytes(view.size());
  if (left == 0 || (!old.empty() && find_first(view, old) == std::string_view::npos)) return text;
  MarkedBuffer& out = runtime.new_buffer();
  Meter& meter = runtime.meter();
  std::size_t begin = 0;
  if (old.empty()) {
    // Between all characters and at both ends.
    for (; left != 0; --left) {
      append(meter, out, replacement.fresh);
      if (begin >= view.size()) return Runtime::whole(out);
      const std::size_t end = begin + character_bytes(view, begin);
      meter.step();
      append(meter, out, text.slice(begin, end));
      begin = end;
    }
  }
  for (; left != 0; --left) {
    const std::size_t found = find_first(view, old, begin);
    if (found == std::string_view::npos) break;
    meter.step();
    append(meter, out, text.slice(begin, found));
    append(meter, out, replacement.fresh);
    begin = found + old.size();
  }
  append(meter, out, text.from(begin));
  return Runtime::whole(out);
}

List& split(Runtime& runtime, const Text& text, const Split& how) {
  runtime.meter().step_bytes(text.size());
  Splitter splitter(runtime, text, how.splits);
  if (!how.separator)
    return how.from_right ? splitter.at_spaces_from_right() : splitter.at_spaces();
  if (how.separator->empty()) throw Fault("split: the separator is empty");
  return how.from_right ? splitter.at_from_right(how.separator->view())
                        : splitter.at(how.separator->view());
}

std::vector<Text> split_lines(Runtime& runtime, const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const std::string_view view = text.view();
  runtime.meter().step_bytes(view.size());
  std::size_t begin = 0;
  for (std::size_t at = 0; at < view.size();) {
    const char32_t c = decode_character(view, at);
    const std::size_t end_of_line = at;
    at += character_bytes(view, at);
    if (!is_line_end(c)) continue;
    if (c == '\r' && at < view.size() && view[at] == '\n') ++at;
    runtime.meter().step();
    runtime.meter().hold(sizeof(Text));
    lines.push_back(text.slice(begin, keep_ends ? at : end_of_line));
    begin = at;
  }
  if (begin < view.size()) lines.push_back(text.from(begin));
  return lines;
}

Text join(Runtime& runtime, const Text& separator, const List& parts) {
  MarkedBuffer& out = runtime.new_buffer();
  for (std::size_t i = 0; i < parts.items.size(); ++i) {
    if (i > 0) append(runtime.meter(), out, separator);
    runtime.meter().step();
    append(runtime.meter(), out, parts.items[i].text());
  }
  return Runtime::whole(out);
}

Text pad(Runtime& runtime, const Text& text, const Padding& padding) {
  runtime.meter().expect(padding.left);
  runtime.meter().expect(padding.right);
  MarkedBuffer& out = runtime.new_buffer();
  out.append(runtime.meter(), std::string(padding.left, padding.fill), TextSource::tmpl);
  append(runtime.meter(), out, text);
  out.append(runtime.meter(), std::string(padding.right, padding.fill), TextSource::tmpl);
  return Runtime::whole(out);
}

namespace {

/// Rewrites character by character; `rewrite(out, character)` may keep state.
template <typename Rewrite>
Text map_characters(Runtime& runtime, const Text& text, Rewrite rewrite) {
  MarkedBuffer& out = runtime.new_buffer();
  text.for_each_run([&](std::string_view bytes, TextSource source) {
    std::string mapped;
    mapped.reserve(bytes.size());
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = character_bytes(bytes, at);
      const char32_t c = decode_character(bytes, at);
      // Invalid bytes are unchanged.
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

bool precedes_word(char32_t c) {
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
    first = precedes_word(c);
  });
}

}  // namespace hyb::jinja
