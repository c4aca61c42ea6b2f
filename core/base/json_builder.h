#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"

namespace hyb {

/// Builds the tree of parse_json() from nlohmann's SAX events and checks depth and duplicate keys.
/// A reader of one format may derive from it to keep large tables out of the tree.
class JsonBuilder : public nlohmann::json_sax<Json> {
 public:
  JsonBuilder(std::string_view source, int depth_max) : source_(source), depth_max_(depth_max) {}

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
    if (!keys_.back().insert(value).second) fail("duplicate key \"" + value + "\"");
    key_ = std::move(value);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail("not valid JSON at byte " + std::to_string(position) + " (" + reason(error.what()) + ")");
  }

 protected:
  [[noreturn]] void fail(const std::string& text) const {
    throw Error(ErrorKind::model, source_ + ": " + text);
  }

 private:
  /// Without the library's own names, and cut: it repeats what was read last, be it megabytes.
  static std::string reason(std::string_view text) {
    constexpr std::size_t length_max = 200;
    for (const std::string_view lead : {"] ", "parse error at "}) {
      const std::size_t at = text.find(lead);
      if (at < text.find(':')) text.remove_prefix(at + lead.size());
    }
    // On the first line the byte says it all; a line of a file of requests has another number.
    if (text.starts_with("line 1, "))
      text.remove_prefix(std::min(text.find(": "), text.size() - 2) + 2);
    if (text.size() <= length_max) return std::string(text);
    return std::string(text.substr(0, length_max)) + " ...";
  }

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
    // The key is new (checked above): no need for the linear search of ordered_json's operator[].
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
      fail("JSON nested deeper than " + std::to_string(depth_max_) + " levels");
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

}  // namespace hyb
