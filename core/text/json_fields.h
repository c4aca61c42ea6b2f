#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/json.h"

namespace hyb {

/// An object of a tokenizer.json, read field by field. Each reader throws Error(model) that names
/// the file and the field when a value has another type than asked for.
class JsonFields {
 public:
  /// `where` begins every error: "tokenizer.json: normalizer". Throws unless `json` is an object.
  JsonFields(const Json& json, std::string where);

  std::string text(std::string_view key) const;
  std::string text_or(std::string_view key, std::string_view otherwise) const;  // also for null
  bool flag_or(std::string_view key, bool otherwise) const;                     // also for null
  std::int64_t integer(std::string_view key) const;

  /// The value, or a null where the key is missing.
  const Json& at(std::string_view key) const;
  const Json& array(std::string_view key) const;

  const std::string& where() const { return where_; }
  [[noreturn]] void fail(const std::string& text) const;

 private:
  const Json& json_;
  std::string where_;
};

}  // namespace hyb
