#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hyb {

/// Types of values, as files number them.
enum class GgufValueType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  text,
  list,
  u64,
  i64,
  f64,
};

/// Bytes of a value of each type; 0: texts and lists, whose sizes the file says.
inline constexpr std::array<std::uint64_t, 13> gguf_value_bytes = {1, 1, 2, 2, 4, 4, 4,
                                                                   1, 0, 0, 8, 8, 8};

/// A value, or a list of them, where it lies in the header; numbers are little-endian and not
/// aligned, and a text follows its length of 8 bytes.
struct GgufValue {
  GgufValueType type;  ///< of its elements
  bool is_list;
  std::uint64_t count;  ///< 1 where it is no list
  std::string_view bytes;
};

/// The keys and values at the front of a GGUF file. Readers of the format take any type of whole
/// number where one is wanted, and a list with one entry per layer where a number is usual: so do
/// the functions below. A value of another kind, or one out of range, is Error(model) that names
/// file and key.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::filesystem::path path) : path_(std::move(path)) {}

  bool has(std::string_view key) const { return values_.contains(key); }

  // nullopt: there is no such key.
  std::optional<std::string_view> text(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> real(std::string_view key) const;  ///< finite, or a whole number
  std::optional<bool> flag(std::string_view key) const;    ///< 0 and 1 are taken, too

  // Lists; a single value is a list of one. Empty: there is no such key.
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<double> reals(std::string_view key) const;
  std::vector<std::string_view> texts(std::string_view key) const;

  /// Returns whether the value is a list, and not a single value.
  bool is_list(std::string_view key) const;

  /// Names the key in messages: "FILE: key "llama.block_count"".
  std::string place(std::string_view key) const;

  /// All keys, sorted.
  std::vector<std::string_view> keys() const;

  /// False: the key is there already.
  bool add(std::string_view key, const GgufValue& value) {
    return values_.try_emplace(std::string(key), value).second;
  }

 private:
  const GgufValue* find(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, const GgufValue& value, const char* wanted) const;
  std::optional<std::int64_t> integer_at(const GgufValue& value, std::uint64_t i) const;
  std::optional<double> real_at(const GgufValue& value, std::uint64_t i) const;

  std::filesystem::path path_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

}  // namespace hyb
