#include "core/base/json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/base/error.h"

namespace hyb {
namespace {

[[noreturn]] void fail(std::string_view source, const std::string& text) {
  throw Error(ErrorKind::model, std::string(source) + ": " + text);
}

/// Builds the tree while counting depth and watching for repeated keys.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view source, int depth_max) : source_(source), depth_max_(depth_max) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return open(Json::object());
  }
  bool end_object() override {
    keys_.pop_back();
    return close();
  }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    if (!keys_.back().insert(value).second) fail(source_, "duplicate key \"" + value + "\"");
    key_ = std::move(value);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail(source_, "not valid JSON at byte " + std::to_string(position) + " (" + error.what() + ")");
  }

 private:
  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    // The key is new (checked above), so the linear search of ordered_json's operator[] is spared.
    auto& members = parent.get_ref<Json::object_t&>();
    members.Container::emplace_back(std::move(key_), std::move(value));
    return &members.back().second;
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json container) {
    if (static_cast<int>(open_.size()) >= depth_max_) {
      fail(source_, "JSON nested deeper than " + std::to_string(depth_max_) + " levels");
    }
    open_.push_back(place(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string source_;
  int depth_max_;
  Json root_;
  std::string key_;
  std::vector<Json*> open_;  // pointers stay valid: only the innermost container grows
  std::vector<std::set<std::string>> keys_;
};

/// Puts quotes around bare NaN, Infinity and -Infinity outside strings.
std::string quote_python_numbers(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 16);
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    if (in_string) {
      if (text[i] == '\\' && i + 1 < text.size()) out += text[i++];
      else if (text[i] == '"') in_string = false;
      out += text[i++];
      continue;
    }
    std::string_view found;
    for (std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (text.substr(i, word.size()) == word) found = word;
    }
    if (!found.empty()) {
      out.append("\"").append(found).append("\"");
      i += found.size();
      continue;
    }
    in_string = text[i] == '"';
    out += text[i++];
  }
  return out;
}

}  // namespace

Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    fail(source, "JSON of " + std::to_string(text.size()) + " bytes, at most " +
                     std::to_string(limits.bytes_max) + " are read");
  }
  std::string quoted;
  if (limits.python_numbers) {
    quoted = quote_python_numbers(text);
    text = quoted;
  }
  Builder builder(source, limits.depth_max);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hyb
