#include "core/text/jinja/format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/base/strings.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/unicode.h"

namespace hyb::jinja {
namespace {

void append_hex(std::string& out, char32_t value, int digits) {
  static constexpr std::string_view hex = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += hex[(value >> shift) & 0xF];
}

void append_repr_character(std::string& out, char32_t c, char quote) {
  constexpr std::string_view escaped = "\n\r\t\\", letters = "nrt\\";
  const std::size_t known = c < 0x80 ? escaped.find(static_cast<char>(c)) : std::string_view::npos;
  if (known != std::string_view::npos) {
    out += {'\\', letters[known]};
    return;
  }
  if (c == static_cast<char32_t>(quote)) {
    out += '\\';
    out += quote;
  } else if (is_printable(c)) {
    append_utf8(out, c);
  } else if (c < 0x100) {
    out += "\\x";
    append_hex(out, c, 2);
  } else if (c < 0x10000) {
    out += "\\u";
    append_hex(out, c, 4);
  } else {
    out += "\\U";
    append_hex(out, c, 8);
  }
}

/// Appends the repr of a value; everything that Python adds gets one source.
class Writer {
 public:
  Writer(Runtime& runtime, MarkedBuffer& buffer, TextSource source)
      : runtime_(runtime), buffer_(buffer), source_(source) {}

  void write(const Value& value) {
    runtime_.meter().step();
    const Nested nested(runtime_.meter());
    switch (value.kind()) {
      case Kind::undefined:
        return add("Undefined");
      case Kind::none:
        return add("None");
      case Kind::boolean:
        return add(value.boolean() ? "True" : "False");
      case Kind::integer:
        return add(std::to_string(value.integer()));
      case Kind::real:
        return add(format_real(value.real()));
      case Kind::text:
        return write_text(value.text());
      case Kind::list:
        return write_items(value.list().items, "[", "]");
      case Kind::tuple:
        return write_items(value.list().items, "(", value.list().items.size() == 1 ? ",)" : ")");
      case Kind::view:
        add(value.list().label);
        return write_items(value.list().items, "([", "])");
      case Kind::dict:
        return write_dict(value.dict(), "{", "}");
      case Kind::space:
        return write_dict(value.dict(), "<Namespace {", "}>");
      case Kind::range:
        return write_range(value.range());
      case Kind::generator:
        return add("<generator>");
      case Kind::loop:
        return add("<LoopContext>");
      case Kind::callable:
        return write_callable(value.callable());
    }
  }

 private:
  void add(std::string_view bytes) { buffer_.append(runtime_.meter(), bytes, source_); }

  void write_text(const Text& text) {
    const std::string_view view = text.view();
    const bool single = view.find('\'') != std::string_view::npos;
    const char quote = single && view.find('"') == std::string_view::npos ? '"' : '\'';
    add({&quote, 1});
    text.for_each_run([&](std::string_view bytes, TextSource source) {
      std::string escaped;
      for (std::size_t at = 0; at < bytes.size(); at += character_bytes(bytes, at)) {
        append_repr_character(escaped, decode_character(bytes, at), quote);
      }
      buffer_.append(runtime_.meter(), escaped, source);
    });
    add({&quote, 1});
  }

  void write_items(const std::vector<Value>& items, std::string_view open, std::string_view close) {
    add(open);
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(", ");
      write(items[i]);
    }
    add(close);
  }

  void write_dict(const Dict& dict, std::string_view open, std::string_view close) {
    add(open);
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!first) add(", ");
      first = false;
      write(key);
      add(": ");
      write(value);
    }
    add(close);
  }

  void write_range(const Range& range) {
    add("range(" + std::to_string(range.start) + ", " + std::to_string(range.stop) +
        (range.step == 1 ? "" : ", " + std::to_string(range.step)) + ")");
  }

  void write_callable(const Callable& callable) {
    if (callable.kind != Callable::Kind::macro) return add("<function>");
    add("<Macro ");
    if (callable.macro->name.empty())
      add("anonymous");
    else
      write_text(runtime_.text(callable.macro->name, source_));
    add(">");
  }

  Runtime& runtime_;
  MarkedBuffer& buffer_;
  TextSource source_;
};

}  // namespace

std::string format_real(double real) {
  if (std::isnan(real)) return "nan";
  if (std::isinf(real)) return real < 0 ? "-inf" : "inf";
  std::array<char, 64> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), real, std::chars_format::scientific);
  const std::string_view scientific(digits.data(),
                                    static_cast<std::size_t>(end.ptr - digits.data()));
  int exponent = 0;
  const std::size_t mark = scientific.find('e');
  const std::size_t first = scientific[mark + 1] == '+' ? mark + 2 : mark + 1;
  std::from_chars(scientific.data() + first, scientific.data() + scientific.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(scientific);
  const auto fixed = std::to_chars(digits.begin(), digits.end(), real, std::chars_format::fixed);
  std::string out(digits.data(), static_cast<std::size_t>(fixed.ptr - digits.data()));
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

TextSource source_of(Runtime& runtime, const Value& value) {
  runtime.meter().step();
  TextSource worst = TextSource::tmpl;
  const auto widen = [&](TextSource source) { worst = std::max(worst, source); };
  const Nested nested(runtime.meter());
  switch (value.kind()) {
    case Kind::text:
      value.text().for_each_run([&](std::string_view, TextSource source) { widen(source); });
      break;
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      for (const Value& item : value.list().items) widen(source_of(runtime, item));
      break;
    case Kind::dict:
    case Kind::space:
      for (const auto& [key, item] : value.dict().entries()) {
        widen(source_of(runtime, key));
        widen(source_of(runtime, item));
      }
      break;
    default:
      break;
  }
  return worst;
}

void append_repr(Runtime& runtime, MarkedBuffer& buffer, const Value& value) {
  Writer(runtime, buffer, source_of(runtime, value)).write(value);
}

Text to_text(Runtime& runtime, const Value& value) {
  if (value.is_text()) return value.text();
  if (value.is_undefined()) return {};
  MarkedBuffer& buffer = runtime.new_buffer();
  append_repr(runtime, buffer, value);
  return Runtime::whole(buffer);
}

namespace {

/// The value of a replacement field {...}.
Value braces_value(std::string_view field, const Arguments& arguments, std::size_t& automatic) {
  const auto position = field.empty() ? automatic++ : parse_number<std::size_t>(field);
  if (!position) {
    for (const auto& [name, value] : arguments.named) {
      if (name == field) return value;
    }
    throw Fault("format: no argument '" + std::string(field) + "'");
  }
  if (*position < arguments.positional.size()) return arguments.positional[*position];
  throw Fault("format: not enough arguments");
}

}  // namespace

Text format_percent(Runtime& runtime, const Text& format, const Value& values) {
  const std::string_view view = format.view();
  const std::vector<Value> given =
      values.is(Kind::tuple) ? values.list().items : std::vector<Value>{values};
  MarkedBuffer& out = runtime.new_buffer();
  std::size_t taken = 0;
  for (std::size_t at = 0; at < view.size();) {
    const std::size_t percent = std::min(view.find('%', at), view.size());
    append(runtime.meter(), out, format.slice(at, percent));
    if (percent == view.size()) break;
    at = percent + 2;
    const char kind = percent + 1 < view.size() ? view[percent + 1] : '\0';
    if (kind == '%') {
      append(runtime.meter(), out, format.slice(percent, percent + 1));
      continue;
    }
    if (kind != 's') throw Fault("'%' on a string: only %s and %% are supported");
    if (taken == given.size()) throw Fault("not enough arguments for '%'");
    append(runtime.meter(), out, to_text(runtime, given[taken++]));
  }
  if (taken < given.size()) throw Fault("not all arguments of '%' were used");
  return Runtime::whole(out);
}

Text format_braces(Runtime& runtime, const Text& format, const Arguments& arguments) {
  MarkedBuffer& out = runtime.new_buffer();
  const std::string_view view = format.view();
  std::size_t automatic = 0;
  for (std::size_t at = 0; at < view.size();) {
    const std::size_t brace = std::min(view.find_first_of("{}", at), view.size());
    append(runtime.meter(), out, format.slice(at, brace));
    if (brace == view.size()) break;
    const bool doubled = brace + 1 < view.size() && view[brace + 1] == view[brace];
    if (doubled) {
      append(runtime.meter(), out, format.slice(brace, brace + 1));
      at = brace + 2;
      continue;
    }
    const std::size_t close = view.find('}', brace);
    if (view[brace] == '}' || close == std::string_view::npos) throw Fault("format: a lone brace");
    const std::string_view field = view.substr(brace + 1, close - brace - 1);
    if (field.find_first_of(":!.[{") != std::string_view::npos) {
      throw Fault("format: only {}, {0} and {name} are supported, got {" + std::string(field) +
                  "}");
    }
    append(runtime.meter(), out, to_text(runtime, braces_value(field, arguments, automatic)));
    at = close + 1;
  }
  return Runtime::whole(out);
}

}  // namespace hyb::jinja
