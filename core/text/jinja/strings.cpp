#include "core/text/jinja/strings.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "core/text/jinja/format.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"
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

/// Spaces (or `fill`) on both sides of the text.
struct Padding {
  std::size_t left = 0;
  std::size_t right = 0;
  char fill = ' ';
};
Text pad(Runtime& runtime, const Text& text, const Padding& padding) {
  runtime.meter().expect(padding.left);
  runtime.meter().expect(padding.right);
  MarkedBuffer& out = runtime.new_buffer();
  out.append(runtime.meter(), std::string(padding.left, padding.fill), TextSource::tmpl);
  append(runtime.meter(), out, text);
  out.append(runtime.meter(), std::string(padding.right, padding.fill), TextSource::tmpl);
  return Runtime::whole(out);
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

template <Text (*function)(Runtime&, const Text&)>
Value text_case(Runtime& runtime, const Value& self, const Bound&) {
  return Value(function(runtime, self.text()));
}

// The is... methods of strings.

bool is_alphanumeric(char32_t c) { return is_alphabetic(c) || is_numeric(c); }
bool is_seven_bit(char32_t c) { return c < 0x80; }

/// True if the text is not empty (or `empty_counts`) and all its characters are `wanted`.
template <bool (*wanted)(char32_t), bool empty_counts = false>
Value all_are(Runtime& runtime, const Value& self, const Bound&) {
  const std::string_view view = self.view();
  runtime.meter().step_bytes(view.size());
  for (std::size_t at = 0; at < view.size(); at += character_bytes(view, at)) {
    if (!wanted(decode_character(view, at))) return Value(false);
  }
  return Value(empty_counts || !view.empty());
}

/// True if there is a letter with case and all of those are `wanted`.
template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
Value all_cased_are(Runtime& runtime, const Value& self, const Bound&) {
  const std::string_view view = self.view();
  runtime.meter().step_bytes(view.size());
  bool any = false;
  for (std::size_t at = 0; at < view.size(); at += character_bytes(view, at)) {
    const char32_t c = decode_character(view, at);
    if (other(c)) return Value(false);
    any = any || wanted(c);
  }
  return Value(any);
}

// Methods of strings.

template <bool from_right>
Value text_split(Runtime& runtime, const Value& self, const Bound& in) {
  const Split how{
      .separator = in.optional_text(0), .splits = in.integer(1, -1), .from_right = from_right};
  return Value(Kind::list, &split(runtime, self.text(), how));
}

template <bool from_right>
Value text_partition(Runtime& runtime, const Value& self, const Bound& in) {
  const Text text = self.text();
  const Text separator = in.text(0);
  if (separator.empty()) throw Fault("partition: the separator is empty");
  runtime.meter().step_bytes(text.size());
  const std::size_t found = from_right ? find_last(text.view(), separator.view())
                                       : find_first(text.view(), separator.view());
  List& list = runtime.new_list();
  if (found == std::string_view::npos) {
    if (from_right) runtime.push(list, Value(Text{}));
    if (from_right) runtime.push(list, Value(Text{}));
    runtime.push(list, self);
    if (!from_right) runtime.push(list, Value(Text{}));
    if (!from_right) runtime.push(list, Value(Text{}));
  } else {
    runtime.push(list, Value(text.slice(0, found)));
    runtime.push(list, Value(text.slice(found, found + separator.size())));
    runtime.push(list, Value(text.from(found + separator.size())));
  }
  return Value(Kind::tuple, &list);
}

Value text_join(Runtime& runtime, const Value& self, const Bound& in) {
  const List& parts = iterate(runtime, in[0]);
  for (const Value& part : parts.items) {
    if (!part.is_text()) throw Fault("join takes strings, got " + type_name(part));
  }
  return Value(join(runtime, self.text(), parts));
}

/// The part of the text that start and end arguments select; invalid if start is past its end.
struct Window {
  Text text;
  std::int64_t first = 0;  ///< its first character
  bool valid = true;
};

Window window_of(Runtime& runtime, const Text& text, const Bound& in) {
  if (!in.given(1) && !in.given(2)) return {.text = text};
  runtime.meter().step_bytes(text.size());
  const auto count = static_cast<std::int64_t>(character_count(text));
  const auto clamp = [&](std::int64_t at) {
    return at < 0 ? std::max<std::int64_t>(at < -count ? 0 : at + count, 0) : at;
  };
  const std::int64_t first = clamp(in.integer(1, 0));
  const std::int64_t last = std::min(clamp(in.integer(2, count)), count);
  if (first > last) return {.text = {}, .first = 0, .valid = false};
  const std::size_t begin = byte_offset(text, static_cast<std::size_t>(first));
  const std::size_t size = byte_offset(text.from(begin), static_cast<std::size_t>(last - first));
  return {.text = text.slice(begin, begin + size), .first = first};
}

template <bool at_end>
Value text_has_affix(Runtime& runtime, const Value& self, const Bound& in) {
  const Window window = window_of(runtime, self.text(), in);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_text())
      throw Fault("startswith and endswith take strings, got " + type_name(affix));
    if (!window.valid) return false;
    const std::string_view view = window.text.view();
    return at_end ? view.ends_with(affix.view()) : view.starts_with(affix.view());
  };
  if (!in[0].is(Kind::tuple)) return Value(matches(in[0]));
  const std::vector<Value>& affixes = in[0].list().items;
  return Value(std::any_of(affixes.begin(), affixes.end(), matches));
}

/// First character of the occurrence, or -1.
std::int64_t find_in_window(Runtime& runtime, const Value& self, const Bound& in, bool last) {
  const Text needle = in.text(0);
  const Window window = window_of(runtime, self.text(), in);
  if (!window.valid) return -1;
  runtime.meter().step_bytes(window.text.size());
  const std::size_t found = last ? find_last(window.text.view(), needle.view())
                                 : find_first(window.text.view(), needle.view());
  if (found == std::string_view::npos) return -1;
  return window.first + static_cast<std::int64_t>(character_count(window.text.slice(0, found)));
}

template <bool last, bool must_find>
Value text_find(Runtime& runtime, const Value& self, const Bound& in) {
  const std::int64_t found = find_in_window(runtime, self, in, last);
  if (must_find && found < 0) throw Fault("index: the string is not found");
  return Value(found);
}

Value text_count(Runtime& runtime, const Value& self, const Bound& in) {
  const std::string_view needle = in.text(0).view();
  const Window window = window_of(runtime, self.text(), in);
  if (!window.valid) return Value(std::int64_t{0});
  if (needle.empty()) return Value(static_cast<std::int64_t>(character_count(window.text)) + 1);
  runtime.meter().step_bytes(window.text.size());
  std::int64_t count = 0;
  for (std::size_t at = find_first(window.text.view(), needle); at != std::string_view::npos;
       ++count) {
    at = find_first(window.text.view(), needle, at + needle.size());
  }
  return Value(count);
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

char fill_of(const Bound& in) {
  if (!in.given(1)) return ' ';
  const std::string_view fill = in.text(1).view();
  if (fill.size() != 1) throw Fault("the fill is one ASCII character");
  return fill[0];
}

enum class Align { left, right, center };
template <Align align>
Value text_pad(Runtime& runtime, const Value& self, const Bound& in) {
  const auto count = static_cast<std::int64_t>(character_count(self.text()));
  const std::int64_t width = in.integer(0, 80);  // the filter's default
  const char fill = fill_of(in);
  if (width <= count) return self;
  const auto room = static_cast<std::size_t>(width - count);
  // As CPython rounds: the odd one goes left only if the width is odd too.
  const std::size_t left = align == Align::left ? 0
                           : align == Align::right
                               ? room
                               : room / 2 + (room & static_cast<std::size_t>(width) & 1);
  return Value(pad(runtime, self.text(), {.left = left, .right = room - left, .fill = fill}));
}

Value text_zfill(Runtime& runtime, const Value& self, const Bound& in) {
  const Text text = self.text();
  const auto count = static_cast<std::int64_t>(character_count(text));
  if (in.integer(0, 0) <= count) return self;
  const std::size_t sign = text.view().starts_with('-') || text.view().starts_with('+') ? 1 : 0;
  const auto zeros = static_cast<std::size_t>(in.integer(0, 0) - count);
  const Text filled = pad(runtime, text.from(sign), {.left = zeros, .fill = '0'});
  MarkedBuffer& out = runtime.new_buffer();
  append(runtime.meter(), out, text.slice(0, sign));
  append(runtime.meter(), out, filled);
  return Value(Runtime::whole(out));
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

/// With all of Python's line ends.
Value text_splitlines(Runtime& runtime, const Value& self, const Bound& in) {
  const bool keep_ends = in.truth(0, false);
  const Text text = self.text();
  List& lines = runtime.new_list();
  const std::string_view view = text.view();
  runtime.meter().step_bytes(view.size());
  std::size_t begin = 0;
  for (std::size_t at = 0; at < view.size();) {
    const char32_t c = decode_character(view, at);
    const std::size_t end_of_line = at;
    at += character_bytes(view, at);
    if (!is_line_end(c)) continue;
    if (c == '\r' && at < view.size() && view[at] == '\n') ++at;
    runtime.push(lines, Value(text.slice(begin, keep_ends ? at : end_of_line)));
    begin = at;
  }
  if (begin < view.size()) runtime.push(lines, Value(text.from(begin)));
  return Value(Kind::list, &lines);
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
  const std::int64_t width = std::max<std::int64_t>(in.integer(0, 4), 0);
  return pad(runtime, Text{}, {.left = static_cast<std::size_t>(width)});
}

Value filter_indent(Runtime& runtime, const Value& input, const Bound& in) {
  if (!input.is_text()) throw Fault("indent takes a string, got " + type_name(input));
  const Text indention = indention_of(runtime, in);
  const bool blank = in.truth(2, false);
  // With a final line end, the last line counts even if it is empty.
  MarkedBuffer& with_end = runtime.new_buffer();
  append(runtime.meter(), with_end, input.text());
  with_end.append(runtime.meter(), "\n", TextSource::tmpl);
  const Arguments none;
  const std::vector<Value>& lines =
      text_splitlines(runtime, Value(Runtime::whole(with_end)), Bound(none, "splitlines", ""))
          .list()
          .items;
  MarkedBuffer& out = runtime.new_buffer();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append(runtime.meter(), "\n", TextSource::tmpl);
    const bool wanted = i == 0 ? in.truth(1, false) : blank || !lines[i].text().empty();
    if (wanted) append(runtime.meter(), out, indention);
    append(runtime.meter(), out, lines[i].text());
  }
  return Value(Runtime::whole(out));
}

Value filter_escape(Runtime& runtime, const Value& input, const Bound&) {
  static constexpr std::pair<char, std::string_view> entities[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
  MarkedBuffer& out = runtime.new_buffer();
  to_text(runtime, input).for_each_run([&](std::string_view bytes, TextSource source) {
    std::string escaped;
    for (const char c : bytes) {
      const auto* const found = std::find_if(std::begin(entities), std::end(entities),
                                             [c](const auto& entity) { return entity.first == c; });
      if (found == std::end(entities)) {
        escaped += c;
      } else {
        escaped += found->second;
      }
    }
    out.append(runtime.meter(), escaped, source);
  });
  return Value(Runtime::whole(out));
}

/// urllib.parse.quote with "/" kept.
Value filter_urlencode(Runtime& runtime, const Value& input, const Bound&) {
  if (is_iterable(input) && !input.is_text() && !input.is_undefined()) {
    throw Fault("urlencode takes a string, got " + type_name(input));
  }
  static constexpr std::string_view kept =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~/";
  MarkedBuffer& out = runtime.new_buffer();
  to_text(runtime, input).for_each_run([&](std::string_view bytes, TextSource source) {
    std::string quoted;
    for (const char c : bytes) {
      if (kept.find(c) != std::string_view::npos) {
        quoted += c;
        continue;
      }
      std::array<char, 4> hex{};
      std::snprintf(hex.data(), hex.size(), "%%%02X", static_cast<unsigned char>(c));
      quoted += hex.data();
    }
    out.append(runtime.meter(), quoted, source);
  });
  return Value(Runtime::whole(out));
}

Value filter_wordcount(Runtime& runtime, const Value& input, const Bound&) {
  const Text text = to_text(runtime, input);
  const std::string_view view = text.view();
  runtime.meter().step_bytes(view.size());
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < view.size(); at += character_bytes(view, at)) {
    const char32_t c = decode_character(view, at);
    const bool word = c == '_' || is_alphabetic(c) || is_numeric(c);
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value(words);
}

Value filter_format(Runtime& runtime, const Value& input, const Bound& in) {
  const Arguments& arguments = in.arguments();
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    throw Fault("format takes positional or named arguments, not both");
  }
  Value values;
  if (arguments.named.empty()) {
    List& list = runtime.new_list();
    for (const Value& value : arguments.positional) runtime.push(list, value);
    values = Value(Kind::tuple, &list);
  } else {
    Dict& dict = runtime.new_dict();
    for (const auto& [name, value] : arguments.named) {
      runtime.set(dict, runtime.text_value(name), value);
    }
    values = Value(Kind::dict, &dict);
  }
  return Value(format_percent(runtime, to_text(runtime, input), values));
}

Value filter_truncate(Runtime& runtime, const Value& input, const Bound& in) {
  if (!input.is_text()) throw Fault("truncate takes a string, got " + type_name(input));
  const Text text = input.text();
  const std::int64_t most = in.integer(0, 255);
  const Text end = in.text_or(2, runtime.text("..."));
  const std::int64_t leeway = in.integer(3, 5);
  const auto end_count = static_cast<std::int64_t>(character_count(end));
  if (most < end_count || leeway < 0) throw Fault("truncate: 'length' or 'leeway' is too small");
  runtime.meter().step_bytes(text.size());
  const auto count = static_cast<std::int64_t>(character_count(text));
  if (count - leeway <= most) return input;
  Text kept = text.slice(0, byte_offset(text, static_cast<std::size_t>(most - end_count)));
  if (!in.truth(1, false)) {
    const std::size_t space = kept.view().rfind(' ');
    if (space != std::string_view::npos) kept = kept.slice(0, space);
  }
  return Value(runtime.concatenate(kept, end));
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

List& split(Runtime& runtime, const Text& text, const Split& how) {
  runtime.meter().step_bytes(text.size());
  Splitter splitter(runtime, text, how.splits);
  if (!how.separator)
    return how.from_right ? splitter.at_spaces_from_right() : splitter.at_spaces();
  if (how.separator->empty()) throw Fault("split: the separator is empty");
  return how.from_right ? splitter.at_from_right(how.separator->view())
                        : splitter.at(how.separator->view());
}

std::span<const Function> text_methods() {
  static constexpr Function table[] = {
      {"split", "sep? maxsplit?", text_split<false>},
      {"strip", "chars?", text_strip<true, true>},
      {"startswith", "prefix start? end?", text_has_affix<false>},
      {"endswith", "prefix start? end?", text_has_affix<true>},
      {"replace", "old new count?", text_replace},
      {"lstrip", "chars?", text_strip<true, false>},
      {"rstrip", "chars?", text_strip<false, true>},
      {"rsplit", "sep? maxsplit?", text_split<true>},
      {"splitlines", "keepends?", text_splitlines},
      {"join", "iterable", text_join},
      {"upper", "", text_case<upper>},
      {"lower", "", text_case<lower>},
      {"casefold", "", text_case<lower>},
      {"title", "", text_case<title>},
      {"capitalize", "", text_case<capitalize>},
      {"swapcase", "", text_case<swap_case>},
      {"find", "sub start? end?", text_find<false, false>},
      {"rfind", "sub start? end?", text_find<true, false>},
      {"index", "sub start? end?", text_find<false, true>},
      {"rindex", "sub start? end?", text_find<true, true>},
      {"count", "sub start? end?", text_count},
      {"format", "*", text_format},
      {"partition", "sep", text_partition<false>},
      {"rpartition", "sep", text_partition<true>},
      {"removeprefix", "affix", text_remove_affix<false>},
      {"removesuffix", "affix", text_remove_affix<true>},
      {"ljust", "width fillchar?", text_pad<Align::left>},
      {"rjust", "width fillchar?", text_pad<Align::right>},
      {"center", "width fillchar?", text_pad<Align::center>},
      {"zfill", "width", text_zfill},
      {"isdigit", "", all_are<is_decimal_digit>},
      {"isdecimal", "", all_are<is_decimal_digit>},
      {"isnumeric", "", all_are<is_numeric>},
      {"isalpha", "", all_are<is_alphabetic>},
      {"isalnum", "", all_are<is_alphanumeric>},
      {"isspace", "", all_are<is_space>},
      {"isascii", "", all_are<is_seven_bit, true>},
      {"isupper", "", all_cased_are<is_upper_case, is_lower_case>},
      {"islower", "", all_cased_are<is_lower_case, is_upper_case>}};
  return table;
}

std::span<const Function> text_filters() {
  static constexpr Function table[] = {
      {"trim", "chars?", on_text<text_strip<true, true>>},
      {"upper", "", on_text<text_case<upper>>},
      {"lower", "", on_text<text_case<lower>>},
      {"capitalize", "", on_text<text_case<capitalize>>},
      {"title", "", on_text<text_case<title_words>>},
      {"replace", "old new count?", filter_replace},
      {"indent", "width? first? blank?", filter_indent},
      {"escape", "", filter_escape},
      {"e", "", filter_escape},
      {"forceescape", "", filter_escape},
      {"urlencode", "", filter_urlencode},
      {"wordcount", "", filter_wordcount},
      {"format", "*", filter_format},
      {"center", "width?", on_text<text_pad<Align::center>>},
      {"truncate", "length? killwords? end? leeway?", filter_truncate}};
  return table;
}

}  // namespace hyb::jinja
