#include "core/text/jinja/json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
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
  constexpr std::string_view escaped = "\"\\\n\r\t\f\b", letters = "\"\\nrtfb";
  const std::size_t known = c < 0x80 ? escaped.find(static_cast<char>(c)) : escaped.npos;
  if (known != escaped.npos) {
    out += {'\\', letters[known]};
    return;
  }
  if (c >= 0x20 && (c < 0x7F || !ensure_ascii)) {
    append_utf8(out, c);
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

namespace {

bool is_known_role(std::string_view role) {
  static constexpr std::array<std::string_view, 14> roles{
      "user",     "assistant",   "system",      "tool",         "developer",
      "function", "document",    "documents",   "model",        "ipython",
      "control",  "observation", "environment", "tool_response"};
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

std::string_view role_of(const Json& message) {
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return {};
  return role->get_ref<const std::string&>();
}

Value number_from_json(const Json& json) {
  if (json.is_number_float()) return Value(json.get<double>());
  if (json.is_number_unsigned() &&
      json.get<std::uint64_t>() >
          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    throw Fault("the integer " + json.dump() + " is over 64 bits");
  }
  return Value(json.get<std::int64_t>());
}

class Converter {
 public:
  Converter(Runtime& runtime, TextSource source) : runtime_(runtime), source_(source) {}

  Value convert(const Json& json) {
    const Nested nested(runtime_.meter());
    switch (json.type()) {
      case Json::value_t::boolean:
        return Value(json.get<bool>());
      case Json::value_t::number_integer:
      case Json::value_t::number_unsigned:
      case Json::value_t::number_float:
        return number_from_json(json);
      case Json::value_t::string:
        return text(json.get_ref<const std::string&>());
      case Json::value_t::array: {
        List& list = runtime_.new_list();
        for (const Json& item : json) runtime_.push(list, convert(item));
        return Value(Kind::list, &list);
      }
      case Json::value_t::object: {
        Dict& dict = runtime_.new_dict();
        for (const auto& [key, value] : json.items()) runtime_.set(dict, text(key), convert(value));
        return Value(Kind::dict, &dict);
      }
      default:
        return Value::none();
    }
  }

  Value text(std::string_view bytes) { return Value(runtime_.text(bytes, source_)); }

 private:
  Runtime& runtime_;
  TextSource source_;
};

/// The first name under which a message has its reasoning, or null.
const Json* reasoning_of(const Json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found != message.end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

Value message_from_json(Runtime& runtime, const Json& message) {
  const std::string_view role = role_of(message);
  const bool assistant = role == "assistant" || role == "model";
  Converter converter(runtime, assistant ? TextSource::assistant : TextSource::person);
  Converter trusted(runtime, TextSource::tmpl);
  Dict& dict = runtime.new_dict();
  const Json* reasoning = reasoning_of(message);
  if (reasoning != nullptr && !message.contains("thinking")) {
    runtime.set(dict, converter.text("thinking"), converter.convert(*reasoning));
  }
  for (const auto& [key, value] : message.items()) {
    const bool is_role = key == "role" && is_known_role(role);
    runtime.set(dict, converter.text(key), (is_role ? trusted : converter).convert(value));
  }
  if (reasoning != nullptr) {
    runtime.set(dict, converter.text("reasoning_content"), converter.convert(*reasoning));
  }
  return Value(Kind::dict, &dict);
}

}  // namespace

Value value_from_json(Runtime& runtime, const Json& json, TextSource source) {
  return Converter(runtime, source).convert(json);
}

Value messages_from_json(Runtime& runtime, const Json& messages) {
  if (!messages.is_array())
    throw Error(ErrorKind::usage, "messages: an array of objects is wanted");
  List& list = runtime.new_list();
  for (const Json& message : messages) {
    if (!message.is_object()) {
      throw Error(ErrorKind::usage, "messages: item " + std::to_string(list.items.size()) +
                                        " is not an object with role and content");
    }
    runtime.push(list, message_from_json(runtime, message));
  }
  return Value(Kind::list, &list);
}

TextSource source_of_variable(std::string_view name) {
  static constexpr std::array<std::string_view, 8> persons{
      "tools",        "documents", "available_tools", "functions",
      "custom_tools", "xml_tools", "builtin_tools",   "controls"};
  const bool person = std::find(persons.begin(), persons.end(), name) != persons.end();
  return person ? TextSource::person : TextSource::tmpl;
}

}  // namespace hyb::jinja
