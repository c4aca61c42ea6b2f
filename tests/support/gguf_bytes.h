#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hyb::testing {

/// The bytes of a GGUF file, piece by piece, right or wrong: nothing is checked.
class GgufBytes {
 public:
  template <typename Number>
  GgufBytes& add(Number number) {
    static_assert(std::is_arithmetic_v<Number>);
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
    return *this;
  }
  GgufBytes& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  GgufBytes& text(std::string_view text) { return add(std::uint64_t{text.size()}).raw(text); }

  GgufBytes& begin(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    return raw("GGUF").add(version).add(tensors).add(keys);
  }

  template <typename Value>
  GgufBytes& key(std::string_view name, Value value) {
    text(name);
    if constexpr (std::is_arithmetic_v<Value>)
      return add(type_of<Value>()).add(value);
    else
      return add(std::uint32_t{8}).text(value);
  }
  template <typename Number>
  GgufBytes& list(std::string_view name, const std::vector<Number>& values) {
    text(name).add(std::uint32_t{9}).add(type_of<Number>()).add(std::uint64_t{values.size()});
    for (const Number value : values) add(value);
    return *this;
  }
  GgufBytes& list(std::string_view name, const std::vector<std::string>& values) {
    text(name).add(std::uint32_t{9}).add(std::uint32_t{8}).add(std::uint64_t{values.size()});
    for (const std::string& value : values) text(value);
    return *this;
  }

  /// `dimensions` as in the file: the fastest first.
  GgufBytes& tensor(std::string_view name, const std::vector<std::uint64_t>& dimensions,
                    std::uint32_t type, std::uint64_t offset) {
    text(name).add(static_cast<std::uint32_t>(dimensions.size()));
    for (const std::uint64_t length : dimensions) add(length);
    return add(type).add(offset);
  }

  GgufBytes& pad(std::size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment, '\0');
    return *this;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  template <typename Number>
  static constexpr std::uint32_t type_of() {
    if constexpr (std::is_same_v<Number, bool>) return 7;
    if constexpr (std::is_same_v<Number, float>) return 6;
    if constexpr (std::is_same_v<Number, double>) return 12;
    constexpr std::uint32_t is_signed = std::is_signed_v<Number> ? 1 : 0;
    switch (sizeof(Number)) {
      case 1:
        return 0 + is_signed;
      case 2:
        return 2 + is_signed;
      case 4:
        return 4 + is_signed;
      default:
        return 10 + is_signed;
    }
  }

  std::string bytes_;
};

}  // namespace hyb::testing
