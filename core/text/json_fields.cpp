#include "core/text/json_fields.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace hyb {
namespace {

const Json null_json;

std::string quoted(std::string_view key) {
  std::string text = "\"";
  text += key;
  return text += '"';
}

}  // namespace

JsonFields::JsonFields(const Json& json, std::string where)
    : json_(json), where_(std::move(where)) {
  if (!json.is_object()) fail("an object is expected here");
}

void JsonFields::fail(const std::string& text) const {
  throw Error(ErrorKind::model, where_ + ": " + text);
}

const Json& JsonFields::at(std::string_view key) const {
  const auto found = json_.find(std::string(key));
  return found == json_.end() ? null_json : *found;
}

std::string JsonFields::text(std::string_view key) const {
  const Json& value = at(key);
  if (!value.is_string()) fail(quoted(key) + " has to be a string");
  return value.get<std::string>();
}

std::string JsonFields::text_or(std::string_view key, std::string_view otherwise) const {
  return at(key).is_null() ? std::string(otherwise) : text(key);
}

bool JsonFields::flag_or(std::string_view key, bool otherwise) const {
  const Json& value = at(key);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) fail(quoted(key) + " has to be true or false");
  return value.get<bool>();
}

std::int64_t JsonFields::integer(std::string_view key) const {
  const Json& value = at(key);
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX);
  if (!fits) fail(quoted(key) + " has to be an integer");
  return value.get<std::int64_t>();
}

const Json& JsonFields::array(std::string_view key) const {
  const Json& value = at(key);
  if (!value.is_array()) fail(quoted(key) + " has to be a list");
  return value;
}

}  // namespace hyb
