#include "core/io/gguf_metadata.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"

namespace hyb {
namespace {

constexpr std::array<const char*, gguf_value_bytes.size()> value_names = {
    "u8",   "i8",     "u16", "i16", "u32", "i32", "f32", "true or false",
    "text", "a list", "u64", "i64", "f64"};

std::uint64_t bytes_of(GgufValueType type) {
  return gguf_value_bytes.at(static_cast<std::size_t>(type));
}

template <typename Number>
Number number_at(std::string_view bytes, std::uint64_t at) {
  static_assert(std::endian::native == std::endian::little);
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

}  // namespace

std::string GgufMetadata::place(std::string_view key) const {
  return fmt::format("{}: key {}", path_.string(), quote_name(key));
}

std::vector<std::string_view> GgufMetadata::keys() const {
  std::vector<std::string_view> keys;
  keys.reserve(values_.size());
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool GgufMetadata::is_list(std::string_view key) const {
  const GgufValue* value = find(key);
  return value != nullptr && value->is_list;
}

void GgufMetadata::refuse(std::string_view key, const GgufValue& value, const char* wanted) const {
  throw Error(ErrorKind::model, fmt::format("{} must be {}, is {}{}", place(key), wanted,
                                            value.is_list ? "a list of " : "",
                                            value_names.at(static_cast<std::size_t>(value.type))));
}

/// nullopt: it is no whole number, or one that 63 bits do not hold.
std::optional<std::int64_t> GgufMetadata::integer_at(const GgufValue& value,
                                                     std::uint64_t i) const {
  const std::uint64_t at = i * bytes_of(value.type);
  switch (value.type) {
    case GgufValueType::u8:
    case GgufValueType::boolean:
      return number_at<std::uint8_t>(value.bytes, at);
    case GgufValueType::i8:
      return number_at<std::int8_t>(value.bytes, at);
    case GgufValueType::u16:
      return number_at<std::uint16_t>(value.bytes, at);
    case GgufValueType::i16:
      return number_at<std::int16_t>(value.bytes, at);
    case GgufValueType::u32:
      return number_at<std::uint32_t>(value.bytes, at);
    case GgufValueType::i32:
      return number_at<std::int32_t>(value.bytes, at);
    case GgufValueType::i64:
      return number_at<std::int64_t>(value.bytes, at);
    case GgufValueType::u64: {
      const auto number = number_at<std::uint64_t>(value.bytes, at);
      if (number > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return std::nullopt;
      return static_cast<std::int64_t>(number);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufMetadata::real_at(const GgufValue& value, std::uint64_t i) const {
  const std::uint64_t at = i * bytes_of(value.type);
  switch (value.type) {
    case GgufValueType::f32:
      return number_at<float>(value.bytes, at);
    case GgufValueType::f64:
      return number_at<double>(value.bytes, at);
    case GgufValueType::boolean:
      return std::nullopt;
    default:
      const std::optional<std::int64_t> whole = integer_at(value, i);
      return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
  }
}

std::optional<std::string_view> GgufMetadata::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_list || value->type != GgufValueType::text) {
    refuse(key, *value, "text");
  }
  return value->bytes.substr(8);
}

std::optional<std::int64_t> GgufMetadata::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = value->is_list ? std::nullopt : integer_at(*value, 0);
  if (!number) refuse(key, *value, "a whole number of 63 bits");
  return number;
}

std::optional<double> GgufMetadata::real(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = value->is_list ? std::nullopt : real_at(*value, 0);
  if (!number || !std::isfinite(*number)) refuse(key, *value, "a finite number");
  return number;
}

std::optional<bool> GgufMetadata::flag(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = value->is_list ? std::nullopt : integer_at(*value, 0);
  if (!number || (*number != 0 && *number != 1)) refuse(key, *value, "true or false");
  return *number == 1;
}

std::vector<std::int64_t> GgufMetadata::integers(std::string_view key) const {
  std::vector<std::int64_t> numbers;
  const GgufValue* value = find(key);
  if (value == nullptr) return numbers;
  numbers.reserve(value->count);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    const std::optional<std::int64_t> number = integer_at(*value, i);
    if (!number) refuse(key, *value, "whole numbers of 63 bits");
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<double> GgufMetadata::reals(std::string_view key) const {
  std::vector<double> numbers;
  const GgufValue* value = find(key);
  if (value == nullptr) return numbers;
  numbers.reserve(value->count);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    const std::optional<double> number = real_at(*value, i);
    if (!number) refuse(key, *value, "numbers");
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<std::string_view> GgufMetadata::texts(std::string_view key) const {
  std::vector<std::string_view> texts;
  const GgufValue* value = find(key);
  if (value == nullptr) return texts;
  if (value->type != GgufValueType::text) refuse(key, *value, "texts");
  texts.reserve(value->count);
  std::string_view rest = value->bytes;
  for (std::uint64_t i = 0; i < value->count; ++i) {
    const auto length = number_at<std::uint64_t>(rest, 0);
    texts.push_back(rest.substr(8, length));
    rest.remove_prefix(8 + length);
  }
  return texts;
}

}  // namespace hyb
