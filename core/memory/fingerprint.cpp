#include "core/memory/fingerprint.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/quote_name.h"

namespace hyb {
namespace {

std::string value_of(const Fingerprint& fingerprint, const std::string& name) {
  const auto found = fingerprint.find(name);
  return found == fingerprint.end() ? "not given" : quote_name(found->second);
}

}  // namespace

std::string difference(const Fingerprint& here, const Fingerprint& there) {
  const auto text = [&](const std::string& name) {
    return quote_name(name) + " is " + value_of(here, name) + " here and " + value_of(there, name) +
           " there";
  };
  for (const auto& [name, value] : here) {
    const auto other = there.find(name);
    if (other == there.end() || other->second != value) return text(name);
  }
  for (const auto& [name, value] : there) {
    if (!here.contains(name)) return text(name);
  }
  return {};
}

Json to_json(const Fingerprint& fingerprint) {
  Json json = Json::object();
  for (const auto& [name, value] : fingerprint) json[name] = value;
  return json;
}

Fingerprint fingerprint_from(const Json& json, const std::string& source) {
  if (!json.is_object()) throw Error(ErrorKind::model, source + ": the fingerprint is no object");
  Fingerprint fingerprint;
  for (const auto& [name, value] : json.items()) {
    if (!value.is_string()) {
      throw Error(ErrorKind::model,
                  source + ": fingerprint: " + quote_name(name) + " is no string");
    }
    fingerprint[name] = value.get<std::string>();
  }
  return fingerprint;
}

}  // namespace hyb
