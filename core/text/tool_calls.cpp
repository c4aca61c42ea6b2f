#include "core/text/tool_calls.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb {
namespace {

using Body = CallForm::Body;
using State = CallReading::State;

// Several forms begin with <tool_call>; where only the vocabulary decides, the first of them is
// used: JSON of Hermes, Granite 4.0 and Qwen3-Next, then the tags of Qwen3.5, Nemotron 3 and
// Granite 4.2, then those of GLM and Ling.
constexpr CallForm forms[] = {
    {"to=", "", Body::harmony},
    {"<tool_call>", "</tool_call>", Body::list},
    {"<tool_call>", "</tool_call>", Body::tagged, "<function=", ">", "<parameter=", ">", "",
     "</parameter>", "</function>"},
    {"<tool_call>", "</tool_call>", Body::tagged, "", "", "<arg_key>", "</arg_key>", "<arg_value>",
     "</arg_value>"},
    {"<|tool_call_start|>", "<|tool_call_end|>", Body::list},  // LFM2
    {"<|tool_call>", "<tool_call|>", Body::named, "call:"},    // Gemma 4
    {"<TOOLCALL>", "</TOOLCALL>", Body::list},                 // Nemotron 2
    {"<tool_calls>", "</tool_calls>", Body::list},             // Jamba
    {"<|tool_call|>", "", Body::list},                         // Granite 3
    {"[TOOL_CALLS]", "", Body::named, "", "[ARGS]"},           // Mistral, and earlier:
    {"[TOOL_CALLS]", "", Body::list},
};

constexpr std::string_view message_begin = "<|message|>", gemma_quote = "<|\"|>";
constexpr int depth_max = 60;

/// Reads what a model wrote for JSON; nothing where it is none.
std::optional<Json> json_in(const std::string& text) {
  try {
    return parse_json(text, "call");
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// What the schema of a parameter says of its values, wherever it says that.
struct ValueTypes {
  std::string names;           ///< of types, in quotes; empty: any
  Json named = Json::array();  ///< values of 'enum' and 'const'
  std::set<const Json*> seen;  ///< schemas, since references may form rings
  static constexpr std::size_t schemas_max = 200;

  /// `root`: what references are within.
  void add(const Json& schema, const Json& root) {
    if (!schema.is_object() || seen.size() >= schemas_max || !seen.insert(&schema).second) return;
    if (const Json* types = member_of(schema, "type")) names += to_text(*types);
    if (const Json* values = member_of(schema, "enum"); values != nullptr && values->is_array())
      named.insert(named.end(), values->begin(), values->end());
    if (const Json* value = member_of(schema, "const")) named.push_back(*value);
    for (const char* key : {"allOf", "anyOf", "oneOf"}) {
      if (const Json* parts = member_of(schema, key))
        for (const Json& part : *parts) add(part, root);
    }
    const Json* reference = member_of(schema, "$ref");
    if (reference == nullptr || !reference->is_string()) return;
    const auto& path = reference->get_ref<const std::string&>();
    if (!path.starts_with("#/")) return;
    try {
      add(root.at(Json::json_pointer(path.substr(1))), root);
    } catch (const Json::exception&) {
      return;  // of a schema that does not hold together: any value
    }
  }
};

ValueTypes types_of(const Json& tools, std::string_view name, const std::string& key) {
  ValueTypes types;
  for (const Json& tool : tools) {
    const Json* function = member_of(tool, "function");
    if (function == nullptr || function->value("name", Json()) != name) continue;
    const Json* root = member_of(*function, "parameters");
    const Json* properties = root == nullptr ? nullptr : member_of(*root, "properties");
    const Json* schema = properties == nullptr ? nullptr : member_of(*properties, key);
    if (schema != nullptr) types.add(*schema, *root);
    break;
  }
  return types;
}

/// Reads on until something else is there than should be. Where the text has ended instead, more
/// of it may help.
class CallReader {
 public:
  CallReader(std::string_view text, const CallForm& form, const Json& tools)
      : text_(text), form_(form), tools_(tools) {}

  CallReading read() {
    const bool is_message = form_.body == Body::harmony;
    if (is_message ? read_message() : eat(form_.begin) && read_body() && eat(form_.end)) {
      return {State::whole, at_, std::move(calls_)};
    }
    return {is_refuted_ ? State::refuted : State::open, 0};
  }

  /// The only value of the text, as JSON.
  std::optional<Json> only_value(std::string& out) {
    if (!read_value(out, 0) || next() != '\0') return std::nullopt;
    return json_in(out);
  }

 private:
  std::string_view rest() const { return text_.substr(at_); }

  bool fail() {
    is_refuted_ = at_ < text_.size();
    return false;
  }

  /// Something has begun, and its end is not there.
  bool await() {
    at_ = text_.size();
    return false;
  }

  /// The character after white space; 0 at the end.
  char next() {
    at_ = std::min(text_.find_first_not_of(white_space, at_), text_.size());
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  /// Returns whether a token comes next. A part of it at the end of the text is waited for.
  bool sees(std::string_view token) {
    next();
    if (rest().starts_with(token)) return true;
    return token.starts_with(rest()) ? await() : false;
  }

  bool eat(std::string_view token) {
    if (!token.empty() && !sees(token)) return fail();
    at_ += token.size();
    return true;
  }

  bool sees_text() { return std::string_view("\"'<").find(next()) != std::string_view::npos; }

  /// A name, or a value without quotes; empty: there is none.
  std::string_view word() {
    next();
    const std::size_t begin = at_;
    at_ = std::min(text_.find_first_of(" \t\r\n<>()[]{}\"'=,:", at_), text_.size());
    return text_.substr(begin, at_ - begin);
  }

  bool read_value(std::string& out, int depth) {
    const char c = depth < depth_max ? next() : '\0';
    if (c == '{') return read_group(out, '}', ":", depth);
    if (c == '[') return read_group(out, ']', "", depth);
    if (sees_text()) return read_text(out);
    const std::string_view found = word();
    out += found == "True" ? "true" : found == "False" ? "false" : found == "None" ? "null" : found;
    return !found.empty() || fail();
  }

  bool read_key(std::string& out) {
    if (sees_text()) return read_text(out);
    const std::string_view found = word();
    out += to_text(Json(found));
    return !found.empty() || fail();
  }

  /// A string as JSON.
  bool read_text(std::string& out) {
    if (text_[at_] == '<') {
      if (!eat(gemma_quote)) return false;
      const std::size_t end = text_.find(gemma_quote, at_);
      if (end == std::string_view::npos) return await();
      out += to_text(Json(text_.substr(at_, end - at_)));
      at_ = end + gemma_quote.size();
      return true;
    }
    const char quote = text_[at_];
    out += '"';
    while (++at_ < text_.size() && text_[at_] != quote) {
      const char c = text_[at_];
      if (c == '\\' && at_ + 1 < text_.size()) {
        out += escape_of(text_[++at_]);
      } else if (static_cast<unsigned char>(c) < 0x20) {
        out += fmt::format("\\u{:04x}", static_cast<int>(c));
      } else {
        if (c == '"') out += '\\';
        out += c;
      }
    }
    if (at_ >= text_.size()) return await();
    ++at_;
    out += '"';
    return true;
  }

  static std::string escape_of(char c) {
    if (c == 'x') return "\\u00";
    if (c == '\'') return "'";
    const bool is_known = std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos;
    return (is_known ? "\\" : "\\\\") + std::string(1, c);
  }

  /// Reads what is in brackets, with keys where `colon` is between them and the values.
  bool read_group(std::string& out, char close, std::string_view colon, int depth) {
    ++at_;
    out += colon.empty() ? '[' : '{';
    for (bool is_first = true; next() != close; is_first = false) {
      if (!is_first && !eat(",")) return false;
      if (!is_first) out += ", ";
      if (!colon.empty() && !(read_key(out) && eat(colon))) return false;
      if (!colon.empty()) out += ": ";
      if (!read_value(out, depth + 1)) return false;
    }
    ++at_;
    out += colon.empty() ? ']' : '}';
    return true;
  }

  bool add(std::string_view name, std::string arguments) {
    const std::optional<Json> read = json_in(arguments);
    if (name.empty() || !read || !read->is_object()) return fail();
    calls_.push_back({std::string(name), std::move(arguments)});
    return true;
  }

  /// The object, or what is in a call's brackets.
  bool read_arguments(std::string_view name, std::string_view open, std::string_view colon) {
    std::string arguments;
    if (!sees(open)) return fail();
    return read_group(arguments, open == "{" ? '}' : ')', colon, 0) &&
           add(name, std::move(arguments));
  }

  bool read_body() {
    if (form_.body == Body::list) return read_list();
    if (!eat(form_.before_name)) return false;
    const std::string_view name = word();
    if (!eat(form_.after_name)) return false;
    return form_.body == Body::named ? read_arguments(name, "{", ":") : read_tagged(name);
  }

  bool read_message() {
    const std::size_t header = std::min(text_.find(message_begin), text_.size());
    const ToolCall call = harmony_call(text_.substr(0, header));
    at_ = header;
    return eat(message_begin) && read_arguments(call.name, "{", ":");
  }

  bool read_list() {
    const bool is_list = next() == '[';
    if (is_list) ++at_;
    do {
      if (next() == '{' ? !read_object() : !read_arguments(word(), "(", "=")) return false;
    } while (is_list && sees(",") && eat(","));
    return !is_list || eat("]");
  }

  bool read_object() {
    std::string name, arguments = "{}";
    ++at_;
    for (bool is_first = true; next() != '}'; is_first = false) {
      std::string key, value;
      if (!is_first && !eat(",")) return false;
      if (!read_key(key) || !eat(":") || !read_value(value, 0)) return false;
      if (key == "\"name\"") name = value;
      if (key == "\"arguments\"" || key == "\"parameters\"") arguments = value;
    }
    ++at_;
    const std::optional<Json> text = json_in(name);
    return add(text && text->is_string() ? text->get<std::string>() : "", arguments);
  }

  bool read_tagged(std::string_view name) {
    const std::string_view close = form_.close.empty() ? form_.end : form_.close;
    std::string arguments = "{";
    while (!sees(close)) {
      if (!eat(form_.before_key)) return false;
      const std::size_t end = text_.find(form_.after_key, at_);
      if (end == std::string_view::npos) return await();
      const std::string key(trim(text_.substr(at_, end - at_)));
      at_ = end + form_.after_key.size();
      std::string value;
      const bool has_begin = form_.before_value.empty() || eat(form_.before_value);
      if (!has_begin || !read_tagged_value(value, close)) return false;
      arguments += (arguments.size() > 1 ? ", " : "") + to_text(Json(key)) + ": ";
      arguments += typed(value, types_of(tools_, name, key));
    }
    return eat(form_.close) && add(name, arguments + "}");
  }

  /// A text may hold what ends a value: what counts is the one that the call goes on after.
  bool read_tagged_value(std::string& out, std::string_view close) {
    for (std::size_t end = at_;; ++end) {
      end = text_.find(form_.after_value, end);
      if (end == std::string_view::npos) return await();
      const std::string_view behind = trim_left(text_.substr(end + form_.after_value.size()));
      if (behind.starts_with(form_.before_key) || behind.starts_with(close)) {
        out = text_.substr(at_, end - at_);
        at_ = end + form_.after_value.size();
        break;
      }
      if (form_.before_key.starts_with(behind) || close.starts_with(behind)) return await();
    }
    if (form_.before_value.empty() && out.ends_with('\n')) out.pop_back();
    if (form_.before_value.empty() && out.starts_with('\n')) out.erase(0, 1);
    return true;
  }

  /// A value as JSON: what it reads, where the schema allows that; else the text.
  std::string typed(const std::string& value, const ValueTypes& types) const {
    std::string out;
    const auto allows = [&](const std::string& type) {
      return types.names.empty() || types.names.find('"' + type + '"') != std::string::npos;
    };
    const bool is_named = std::ranges::count(types.named, Json(value)) > 0;
    const std::optional<Json> read = CallReader(value, form_, tools_).only_value(out);
    if (!read || is_named) return to_text(Json(value));
    const bool is_whole = read->is_number() && *read == std::floor(read->get<double>());
    const bool is_allowed = allows(read->type_name()) || (is_whole && allows("integer"));
    return allows("string") && (read->is_string() || !is_allowed) ? to_text(Json(value)) : out;
  }

  std::string_view text_;
  const CallForm& form_;
  const Json& tools_;
  std::size_t at_ = 0;
  bool is_refuted_ = false;
  std::vector<ToolCall> calls_;
};

}  // namespace

CallReading read_call(std::string_view text, const CallForm& form) {
  return CallReader(text, form, Json()).read();
}

std::vector<ToolCall> calls_in(std::string_view text, const CallTerms& terms) {
  std::vector<ToolCall> calls;
  const Json tools = parse_json(terms.tools, "tools", {.depth_max = 256});
  while (!trim(text).empty()) {
    CallReading reading = CallReader(text, *terms.form, tools).read();
    if (reading.state != State::whole) break;
    std::ranges::move(reading.calls, std::back_inserter(calls));
    text.remove_prefix(reading.length);
  }
  return calls;
}

ToolCall harmony_call(std::string_view message) {
  constexpr std::string_view begin = "to=", space = "functions.";
  const std::size_t at = message.find(begin), header = message.find(message_begin);
  ToolCall call;
  if (at < header) {
    call.name = message.substr(at + begin.size());
    call.name.resize(std::min(call.name.find_first_of(" \t\r\n<"), call.name.size()));
    if (call.name.starts_with(space)) call.name.erase(0, space.size());
  }
  if (header < message.size()) call.arguments = message.substr(header + message_begin.size());
  return call;
}

const CallForm& call_list() {
  static constexpr CallForm list = {"", "", Body::list};
  return list;
}

const CallForm* call_form_in(std::string_view text, std::string_view name) {
  for (const CallForm& form : forms) {
    for (std::size_t at = text.find(form.begin); at != std::string_view::npos;
         at = text.find(form.begin, at + 1)) {
      const CallReading reading = read_call(text.substr(at), form);
      if (reading.state == State::whole && reading.calls.front().name == name) return &form;
    }
  }
  return nullptr;
}

const CallForm* call_form_of(const Tokenizer& tokenizer) {
  const auto found = std::ranges::find_if(forms, [&](const CallForm& form) {
    return form.body == Body::harmony ? tokenizer.find(message_begin) && tokenizer.find("<|call|>")
                                      : tokenizer.find(form.begin).has_value();
  });
  return found == std::end(forms) ? nullptr : found;
}

}  // namespace hyb
