// Methods of strings (methods.h).
#include <algorithm>

#include "core/text/jinja/fault.h"
#include "core/text/jinja/methods.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/percent_format.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/text_functions.h"
#include "core/text/jinja/unicode.h"

namespace hyb::jinja {
namespace {

constexpr auto npos = std::string_view::npos;

std::optional<Text> characters_of(const Bound& in) {
  return in.given(0) ? std::optional<Text>(in.text(0)) : std::nullopt;
}

template <bool left, bool right>
Value text_strip(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "strip", {"chars"});
  return Value(strip(runtime, self.text(), characters_of(in), {left, right}));
}

template <bool from_right>
Value text_split(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "split", {"sep", "maxsplit"});
  const Split how{
      .separator = characters_of(in), .splits = in.integer(1, -1), .from_right = from_right};
  return Value(Kind::list, &split(runtime, self.text(), how));
}

Value text_splitlines(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "splitlines", {"keepends"});
  List& list = runtime.new_list();
  for (const Text& line : split_lines(runtime, self.text(), in.truth(0, false))) {
    runtime.push(list, Value(line));
  }
  return Value(Kind::list, &list);
}

template <bool from_right>
Value text_partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "partition", {"sep"}, 1);
  const Text text = self.text();
  const Text separator = in.text(0);
  if (separator.empty()) throw Fault("partition: the separator is empty");
  runtime.meter().step_bytes(text.size());
  const std::size_t found = from_right ? find_last(text.view(), separator.view())
                                       : find_first(text.view(), separator.view());
  List& list = runtime.new_list();
  if (found == npos) {
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

Value text_replace(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "replace", {"old", "new", "count"}, 2);
  return Value(replace(runtime, self.text(),
                       {.old = in.text(0), .fresh = in.text(1), .count = in.integer(2, -1)}));
}

Value text_join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "join", {"iterable"}, 1);
  const List& parts = iterate(runtime, in[0]);
  for (const Value& part : parts.items) {
    if (!part.is_text()) throw Fault("join takes strings, got " + type_name(part));
  }
  return Value(join(runtime, self.text(), parts));
}

/// The part of the text that start and end arguments leave; nothing if start is past its end.
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
Value text_has_affix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, at_end ? "endswith" : "startswith", {"prefix", "start", "end"}, 1);
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
  if (found == npos) return -1;
  return window.first + static_cast<std::int64_t>(character_count(window.text.slice(0, found)));
}

template <bool last, bool must_find>
Value text_find(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, must_find ? "index" : "find", {"sub", "start", "end"}, 1);
  const std::int64_t found = find_in_window(runtime, self, in, last);
  if (must_find && found < 0) throw Fault("index: the string is not found");
  return Value(found);
}

Value text_count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "count", {"sub", "start", "end"}, 1);
  const std::string_view needle = in.text(0).view();
  const Window window = window_of(runtime, self.text(), in);
  if (!window.valid) return Value(std::int64_t{0});
  if (needle.empty()) return Value(static_cast<std::int64_t>(character_count(window.text)) + 1);
  runtime.meter().step_bytes(window.text.size());
  std::int64_t count = 0;
  for (std::size_t at = find_first(window.text.view(), needle); at != npos; ++count) {
    at = find_first(window.text.view(), needle, at + needle.size());
  }
  return Value(count);
}

template <bool at_end>
Value text_remove_affix(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, at_end ? "removesuffix" : "removeprefix", {"affix"}, 1);
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
Value text_pad(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "padding", {"width", "fillchar"}, 1);
  const auto count = static_cast<std::int64_t>(character_count(self.text()));
  const std::int64_t width = in.integer(0, 0);
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

Value text_zfill(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "zfill", {"width"}, 1);
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

template <Text (*function)(Runtime&, const Text&)>
Value text_case(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "a case method", {});
  return Value(function(runtime, self.text()));
}

Value text_format(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return Value(format_braces(runtime, self.text(), arguments));
}

}  // namespace

std::span<const FunctionEntry> text_methods() {
  static constexpr FunctionEntry table[] = {{"split", text_split<false>},
                                            {"strip", text_strip<true, true>},
                                            {"startswith", text_has_affix<false>},
                                            {"endswith", text_has_affix<true>},
                                            {"replace", text_replace},
                                            {"lstrip", text_strip<true, false>},
                                            {"rstrip", text_strip<false, true>},
                                            {"rsplit", text_split<true>},
                                            {"splitlines", text_splitlines},
                                            {"join", text_join},
                                            {"upper", text_case<upper>},
                                            {"lower", text_case<lower>},
                                            {"casefold", text_case<lower>},
                                            {"title", text_case<title>},
                                            {"capitalize", text_case<capitalize>},
                                            {"swapcase", text_case<swap_case>},
                                            {"find", text_find<false, false>},
                                            {"rfind", text_find<true, false>},
                                            {"index", text_find<false, true>},
                                            {"rindex", text_find<true, true>},
                                            {"count", text_count},
                                            {"format", text_format},
                                            {"partition", text_partition<false>},
                                            {"rpartition", text_partition<true>},
                                            {"removeprefix", text_remove_affix<false>},
                                            {"removesuffix", text_remove_affix<true>},
                                            {"ljust", text_pad<Align::left>},
                                            {"rjust", text_pad<Align::right>},
                                            {"center", text_pad<Align::center>},
                                            {"zfill", text_zfill}};
  return table;
}

}  // namespace hyb::jinja
