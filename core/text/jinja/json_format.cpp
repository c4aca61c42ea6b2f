#include "core/text/jinja/json_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/text/jinja/fault.h"
#include "core/text/jinja/format.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/unicode.h"

namespace hyb::jinja {
namespace {

void append_unit(std::string& out, unsigned unit) {
  std::array<char, 8> digits{};
  std::snprintf(digits.data(), digits.size(), "\\u%04x", unit & 0xFFFFU);
  out += digits.data();
}

void append_escaped(std::string& out, char32_t c, bool ensure_ascii) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\b':
      out += "\\b";
      return;
    default:
      break;
  }
  if (c >= 0x20 && (c < 0x7F || !ensure_ascii)) {
    append_character(out, c);
  } else if (c < 0x10000) {
    append_unit(out, c);
  } else {
    append_unit(out, 0xD800U + ((c - 0x10000U) >> 10));
    append_unit(out, 0xDC00U + ((c - 0x10000U) & 0x3FFU));
  }
}

std::string real_text(double real) {
  if (std::isnan(real)) return "NaN";
  if (std::isinf(real)) return real < 0 ? "-Infinity" : "Infinity";
  return format_real(real);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, MarkedBuffer& buffer, const JsonStyle& style, TextSource source)
      : runtime_(runtime), buffer_(buffer), style_(style), source_(source) {}

  void write(const Value& value) {
    runtime_.meter().step();
    const Nested nested(runtime_.meter());
    switch (value.kind()) {
      case Kind::none:
        return add("null");
      case Kind::boolean:
        return add(value.boolean() ? "true" : "false");
      case Kind::integer:
        return add(std::to_string(value.integer()));
      case Kind::real:
        return add(real_text(value.real()));
      case Kind::text:
        return write_text(value.text());
      case Kind::list:
      case Kind::tuple:
        return write_list(value.list().items);
      case Kind::dict:
        return write_dict(value.dict());
      default:
        throw Fault(type_name(value) + " has no JSON form");
    }
  }

 private:
  void add(std::string_view bytes) { buffer_.append(runtime_.meter(), bytes, source_); }

  void write_text(const Text& text) {
    add("\"");
    text.for_each_run([&](std::string_view bytes, TextSource source) {
      std::string escaped;
      for (std::size_t at = 0; at < bytes.size(); at += character_bytes(bytes, at)) {
        append_escaped(escaped, decode_character(bytes, at), style_.ensure_ascii);
      }
      buffer_.append(runtime_.meter(), escaped, source);
    });
    add("\"");
  }

  void line() {
    if (!style_.indent) return;
    add("\n");
    for (int i = 0; i < level_; ++i) add(*style_.indent);
  }

  void write_list(const std::vector<Value>& items) {
    if (items.empty()) return add("[]");
    add("[");
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(style_.item_separator);
      line();
      write(items[i]);
    }
    --level_;
    line();
    add("]");
  }

  void write_key(const Value& key) {
    switch (key.kind()) {
      case Kind::text:
        return write_text(key.text());
      case Kind::none:
      case Kind::boolean:
      case Kind::integer:
      case Kind::real:
        add("\"");
        write(key);
        return add("\"");
      default:
        throw Fault("a JSON key is a string or a number, got " + type_name(key));
    }
  }

  void write_dict(const Dict& dict) {
    if (dict.size() == 0) return add("{}");
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const Dict::Entry* a, const Dict::Entry* b) {
                         return less(runtime_, a->first, b->first);
                       });
    }
    add("{");
    ++level_;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) add(style_.item_separator);
      line();
      write_key(entries[i]->first);
      add(style_.key_separator);
      write(entries[i]->second);
    }
    --level_;
    line();
    add("}");
  }

  Runtime& runtime_;
  MarkedBuffer& buffer_;
  const JsonStyle& style_;
  TextSource source_;
  int level_ = 0;
};

}  // namespace

Text to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  MarkedBuffer& buffer = runtime.new_buffer();
  JsonWriter(runtime, buffer, style, source_of(runtime, value)).write(value);
  return Runtime::whole(buffer);
}

}  // namespace hyb::jinja
