// Filters that work on text (filters.h); other values are turned into text first.
#include <algorithm>
#include <array>
#include <cstdio>

#include "core/text/jinja/fault.h"
#include "core/text/jinja/filters.h"
#include "core/text/jinja/format.h"
#include "core/text/jinja/methods.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/percent_format.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/text_functions.h"
#include "core/text/jinja/unicode.h"

namespace hyb::jinja {
namespace {

template <Text (*function)(Runtime&, const Text&)>
Value filter_case(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "a case filter", {});
  return Value(function(runtime, to_text(runtime, input)));
}

Value filter_trim(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "trim", {"chars"});
  const auto characters = in.given(0) ? std::optional<Text>(in.text(0)) : std::nullopt;
  return Value(strip(runtime, to_text(runtime, input), characters));
}

Value filter_replace(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "replace", {"old", "new", "count"}, 2);
  return Value(replace(runtime, to_text(runtime, input),
                       {.old = to_text(runtime, in[0]),
                        .fresh = to_text(runtime, in[1]),
                        .count = in.integer(2, -1)}));
}

Text indention_of(Runtime& runtime, const Bound& in) {
  if (in[0].is_text()) return in[0].text();
  const std::int64_t width = std::max<std::int64_t>(in.integer(0, 4), 0);
  return pad(runtime, Text{}, {.left = static_cast<std::size_t>(width)});
}

Value filter_indent(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "indent", {"width", "first", "blank"});
  if (!input.is_text()) throw Fault("indent takes a string, got " + type_name(input));
  const Text indention = indention_of(runtime, in);
  const bool blank = in.truth(2, false);
  // A line end is added, so that the last line counts even if it is empty.
  MarkedBuffer& with_end = runtime.new_buffer();
  append(runtime.meter(), with_end, input.text());
  with_end.append(runtime.meter(), "\n", TextSource::tmpl);
  const std::vector<Text> lines = split_lines(runtime, Runtime::whole(with_end), false);
  MarkedBuffer& out = runtime.new_buffer();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append(runtime.meter(), "\n", TextSource::tmpl);
    const bool wanted = i == 0 ? in.truth(1, false) : blank || !lines[i].empty();
    if (wanted) append(runtime.meter(), out, indention);
    append(runtime.meter(), out, lines[i]);
  }
  return Value(Runtime::whole(out));
}

Value filter_escape(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "escape", {});
  MarkedBuffer& out = runtime.new_buffer();
  to_text(runtime, input).for_each_run([&](std::string_view bytes, TextSource source) {
    std::string escaped;
    for (const char c : bytes) {
      switch (c) {
        case '&':
          escaped += "&amp;";
          break;
        case '<':
          escaped += "&lt;";
          break;
        case '>':
          escaped += "&gt;";
          break;
        case '"':
          escaped += "&#34;";
          break;
        case '\'':
          escaped += "&#39;";
          break;
        default:
          escaped += c;
      }
    }
    out.append(runtime.meter(), escaped, source);
  });
  return Value(Runtime::whole(out));
}

/// urllib.parse.quote with "/" kept.
Value filter_urlencode(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "urlencode", {});
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

Value filter_wordcount(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "wordcount", {});
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

Value filter_format(Runtime& runtime, const Value& input, const Arguments& arguments) {
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

Value filter_center(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "center", {"width"});
  const Arguments width{.positional = {Value(in.integer(0, 80))}};
  return call_method(runtime, Value(to_text(runtime, input)), "center", width);
}

Value filter_truncate(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "truncate", {"length", "killwords", "end", "leeway"});
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

std::span<const FunctionEntry> text_filters() {
  static constexpr FunctionEntry table[] = {{"trim", filter_trim},
                                            {"upper", filter_case<upper>},
                                            {"lower", filter_case<lower>},
                                            {"capitalize", filter_case<capitalize>},
                                            {"title", filter_case<title_words>},
                                            {"replace", filter_replace},
                                            {"indent", filter_indent},
                                            {"escape", filter_escape},
                                            {"e", filter_escape},
                                            {"forceescape", filter_escape},
                                            {"urlencode", filter_urlencode},
                                            {"wordcount", filter_wordcount},
                                            {"format", filter_format},
                                            {"center", filter_center},
                                            {"truncate", filter_truncate}};
  return table;
}

}  // namespace hyb::jinja
