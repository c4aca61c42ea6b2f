#include "core/text/jinja/strings.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "core/text/jinja/format.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/unicode.h"

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

class WordSplitter {
 public:
  WordSplitter(Runtime& runtime, const Text& text, std::int64_t splits)
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

 private:
  bool space_at(std::size_t at) const { return is_space(decode_character(view_, at)); }

  std::size_t skip(std::size_t at, bool spaces) const {
    while (at < view_.size() && space_at(at) == spaces) at += character_bytes(view_, at);
    return at;
  }

  void add(std::size_t begin, std::size_t end) {
    runtime_.push(out_, Value(text_.slice(begin, end)));
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

Text upper(Runtime& runtime, const Text& text) {
  return map_characters(runtime, text, append_upper);
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

template <Text (*function)(Runtime&, const Text&)>
Value text_case(Runtime& runtime, const Value& self, const Bound&) {
  return Value(function(runtime, self.text()));
}

// Methods of strings.

Value text_split(Runtime& runtime, const Value& self, const Bound& in) {
  return Value(Kind::list, &split(runtime, self.text(), in.optional_text(0), in.integer(1, -1)));
}

Value text_join(Runtime& runtime, const Value& self, const Bound& in) {
  const List& parts = iterate(runtime, in[0]);
  for (const Value& part : parts.items) {
    if (!part.is_text()) throw Fault("join takes strings, got " + type_name(part));
  }
  return Value(join(runtime, self.text(), parts));
}

template <bool at_end>
Value text_has_affix(Runtime&, const Value& self, const Bound& in) {
  const std::string_view view = self.view();
  const auto matches = [&](const Value& affix) {
    if (!affix.is_text())
      throw Fault("startswith and endswith take strings, got " + type_name(affix));
    return at_end ? view.ends_with(affix.view()) : view.starts_with(affix.view());
  };
  if (!in[0].is(Kind::tuple)) return Value(matches(in[0]));
  const std::vector<Value>& affixes = in[0].list().items;
  return Value(std::any_of(affixes.begin(), affixes.end(), matches));
}

/// The first character of the first occurrence, or -1.
Value text_find(Runtime& runtime, const Value& self, const Bound& in) {
  const Text text = self.text();
  runtime.meter().step_bytes(text.size());
  const std::size_t found = find_first(text.view(), in.text(0).view());
  if (found == std::string_view::npos) return Value(std::int64_t{-1});
  return Value(static_cast<std::int64_t>(character_count(text.slice(0, found))));
}

template <bool at_end>
Value text_remove_affix(Runtime&, const Value& self, const Bound& in) {
  const std::string_view affix = in.text(0).view();
  const Text text = self.text();
  if (affix.empty()) return self;
  if (at_end) {
    return text.view().ends_with(affix) ? Value(text.slice(0, text.size() - affix.size())) : self;
  }
  return text.view().starts_with(affix) ? Value(text.from(affix.size())) : self;
}

Value text_format(Runtime& runtime, const Value& self, const Bound& in) {
  return Value(format_braces(runtime, self.text(), in.arguments()));
}

template <bool at_left, bool at_right>
Value text_strip(Runtime& runtime, const Value& self, const Bound& in) {
  const Text text = self.text();
  const std::string_view view = text.view();
  const std::optional<Text> characters = in.optional_text(0);
  const auto is_stripped = [&](std::size_t begin, std::size_t end) {
    if (!characters) return is_space(decode_character(view, begin));
    runtime.meter().step_bytes(characters->size());
    return characters->view().find(view.substr(begin, end - begin)) != std::string_view::npos;
  };
  std::size_t begin = 0;
  while (at_left && begin < view.size()) {
    const std::size_t next = begin + character_bytes(view, begin);
    if (!is_stripped(begin, next)) break;
    begin = next;
  }
  std::size_t end = view.size();
  while (at_right && end > begin) {
    const std::size_t previous = previous_character(view, end);
    if (!is_stripped(previous, end)) break;
    end = previous;
  }
  runtime.meter().step_bytes(view.size() - (end - begin));
  return Value(text.slice(begin, end));
}

/// Up to `left` replacements; all if it is negative.
Value replace(Runtime& runtime, const Text& text, const Text& from, const Text& to,
              std::int64_t left) {
  const std::string_view view = text.view();
  const std::string_view old = from.view();
  runtime.meter().step_bytes(view.size());
  if (left == 0 || (!old.empty() && find_first(view, old) == std::string_view::npos))
    return Value(text);
  MarkedBuffer& out = runtime.new_buffer();
  Meter& meter = runtime.meter();
  std::size_t begin = 0;
  if (old.empty()) {
    // Between all characters and at both ends.
    for (; left != 0; --left) {
      append(meter, out, to);
      if (begin >= view.size()) return Value(Runtime::whole(out));
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
    append(meter, out, to);
    begin = found + old.size();
  }
  append(meter, out, text.from(begin));
  return Value(Runtime::whole(out));
}

Value text_replace(Runtime& runtime, const Value& self, const Bound& in) {
  return replace(runtime, self.text(), in.text(0), in.text(1), in.integer(2, -1));
}

// Filters on text; other values are converted to text.

/// A string method as a filter.
template <Value (*method)(Runtime&, const Value&, const Bound&)>
Value on_text(Runtime& runtime, const Value& input, const Bound& in) {
  return method(runtime, Value(to_text(runtime, input)), in);
}

Value filter_replace(Runtime& runtime, const Value& input, const Bound& in) {
  return replace(runtime, to_text(runtime, input), to_text(runtime, in[0]), to_text(runtime, in[1]),
                 in.integer(2, -1));
}

Text indention_of(Runtime& runtime, const Bound& in) {
  if (in[0].is_text()) return in[0].text();
  const auto width = static_cast<std::size_t>(std::max<std::int64_t>(in.integer(0, 4), 0));
  runtime.meter().expect(width);
  return runtime.text(std::string(width, ' '));
}

/// Splits at all of Python's line ends. A final line end starts one more line.
std::vector<Text> lines_of(Runtime& runtime, const Text& text) {
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
    lines.push_back(text.slice(begin, end_of_line));
    begin = at;
  }
  lines.push_back(text.from(begin));
  return lines;
}

Value filter_indent(Runtime& runtime, const Value& input, const Bound& in) {
  if (!input.is_text()) throw Fault("indent takes a string, got " + type_name(input));
  const Text indention = indention_of(runtime, in);
  const bool blank = in.truth(2, false);
  const std::vector<Text> lines = lines_of(runtime, input.text());
  MarkedBuffer& out = runtime.new_buffer();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append(runtime.meter(), "\n", TextSource::tmpl);
    const bool wanted = i == 0 ? in.truth(1, false) : blank || !lines[i].empty();
    if (wanted) append(runtime.meter(), out, indention);
    append(runtime.meter(), out, lines[i]);
  }
  return Value(Runtime::whole(out));
}

}  // namespace

Text lower(Runtime& runtime, const Text& text) {
  return map_characters(runtime, text, append_lower);
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

List& split(Runtime& runtime, const Text& text, const std::optional<Text>& separator,
            std::int64_t splits) {
  runtime.meter().step_bytes(text.size());
  WordSplitter splitter(runtime, text, splits);
  if (!separator) return splitter.at_spaces();
  if (separator->empty()) throw Fault("split: the separator is empty");
  return splitter.at(separator->view());
}

std::span<const Function> text_methods() {
  static constexpr Function table[] = {{"split", "sep? maxsplit?", text_split},
                                       {"strip", "chars?", text_strip<true, true>},
                                       {"startswith", "prefix", text_has_affix<false>},
                                       {"endswith", "prefix", text_has_affix<true>},
                                       {"replace", "old new count?", text_replace},
                                       {"lstrip", "chars?", text_strip<true, false>},
                                       {"rstrip", "chars?", text_strip<false, true>},
                                       {"join", "iterable", text_join},
                                       {"upper", "", text_case<upper>},
                                       {"lower", "", text_case<lower>},
                                       {"title", "", text_case<title>},
                                       {"capitalize", "", text_case<capitalize>},
                                       {"find", "sub", text_find},
                                       {"format", "*", text_format},
                                       {"removeprefix", "affix", text_remove_affix<false>},
                                       {"removesuffix", "affix", text_remove_affix<true>}};
  return table;
}

std::span<const Function> text_filters() {
  static constexpr Function table[] = {{"trim", "chars?", on_text<text_strip<true, true>>},
                                       {"upper", "", on_text<text_case<upper>>},
                                       {"lower", "", on_text<text_case<lower>>},
                                       {"capitalize", "", on_text<text_case<capitalize>>},
                                       {"title", "", on_text<text_case<title_words>>},
                                       {"replace", "old new count?", filter_replace},
                                       {"indent", "width? first? blank?", filter_indent}};
  return table;
}

}  // namespace hyb::jinja
