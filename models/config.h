#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/json.h"

namespace hyb::models {

/// One key of config.json, or several spellings of it: the first that is present counts.
struct Keys {
  explicit Keys(std::string_view key) : spellings{key} {}
  Keys(const char* key) : spellings{key} {}  // NOLINT: c.i("hidden_size") should read like that
  Keys(std::initializer_list<std::string_view> keys) : spellings(keys) {}

  std::vector<std::string_view> spellings;
};

/// Both bounds included.
struct IntRange {
  std::int32_t low;
  std::int32_t high;
};

/// Nothing in a model that can be run is larger; a larger number is a damaged or hostile file.
inline constexpr IntRange dimension_range = {1, 1 << 24};
inline constexpr IntRange count_range = {0, 1 << 24};

/// Typed reading of config.json. Every error is Error(model) naming the file, the key, the rule and
/// the value. An object `text_config` or `llm_config` replaces the whole file when present; null is
/// as if the key were absent; 4.0 is an integer; "Infinity", "inf" and {"__float__": "Infinity"}
/// are numbers. Keys that are not read are ignored.
class Config {
 public:
  /// config.json; and hf_quant_config.json, where config.json has no quantization_config.
  static Config from_folder(const std::filesystem::path& folder);
  static Config from_text(std::string_view text, std::string_view source);

  Config(Config&&) noexcept;
  Config& operator=(Config&&) noexcept;
  ~Config();

  bool has(const Keys& keys) const;
  /// Says whether the key is there and null, where that is not as if it were absent.
  bool is_null(std::string_view key) const;
  /// Those that are there and not null.
  std::vector<std::string> keys() const;

  std::int32_t i(const Keys& keys, IntRange range = dimension_range) const;
  std::int32_t i(const Keys& keys, std::int32_t fallback, IntRange range = dimension_range) const;
  /// Finite, also as a float.
  double f(const Keys& keys) const;
  double f(const Keys& keys, double fallback) const;
  bool b(const Keys& keys, bool fallback) const;
  std::string s(const Keys& keys) const;
  std::string s(const Keys& keys, std::string_view fallback) const;

  /// Says whether the value is a list, for keys that have one value for all or one for each.
  bool is_list(const Keys& keys) const;

  /// Says whether the value is exactly this text, for keys that have a number or a word.
  bool is_text(const Keys& keys, std::string_view text) const;

  std::vector<std::string> strings(const Keys& keys) const;
  std::vector<std::int32_t> integers(const Keys& keys, IntRange range) const;
  /// Infinities are legal here, and numbers in quotes; NaN is not.
  std::vector<double> numbers(const Keys& keys) const;
  /// The object under a key; its errors name "key.inner". nullopt when absent.
  std::optional<Config> object(const Keys& keys) const;
  /// The objects in the object under a key, by their names, which errors quote; null is left out.
  std::vector<std::pair<std::string, Config>> objects(const Keys& keys) const;

  /// Returns how the weights are quantised: `quantization_config`, else what hf_quant_config.json
  /// says, with the name of its producer ("modelopt") as `quant_method`, else what mlx-lm wrote
  /// before it wrote the first: `quantization`; nullopt without any.
  std::optional<Config> quantization() const;

  /// Makes a configuration whose weights are published in this format ("fp8", "mxfp4"), which no
  /// family refuses then: weights that are made up can have any.
  Config with_quantization(std::string_view method) const;
  bool assumes_quantization() const { return assumes_quantization_; }

  /// Makes a configuration whose weights are not quantised.
  Config without_quantization() const;

  /// Makes a configuration without the key.
  Config without(std::string_view key) const;

  /// The same with the values of `object`, the text of one, under keys that are absent or null.
  Config with_defaults(std::string_view object) const;

  /// dtype / torch_dtype: "bfloat16", "float32", "float16"; `fallback` when absent.
  DType dtype(const Keys& keys, DType fallback) const;

  std::string model_type() const { return s("model_type"); }

  /// Returns what precedes the key in every error: the file name.
  const std::string& source() const { return source_; }

  /// Throws Error(model) "source: key: text".
  [[noreturn]] void fail(std::string_view key, const std::string& text) const;

 private:
  Config(Json json, std::string source, std::string prefix);
  Config with(Json json) const;
  static Config from_modelopt(const std::filesystem::path& path);

  const Json* find(const Keys& keys, std::string_view& found) const;
  const Json& at(const Keys& keys, std::string_view& found) const;
  const Json& list(const Keys& keys, std::string_view& found) const;

  std::unique_ptr<const Json> json_;
  std::string source_;
  std::string prefix_;                      // "" or "rope_parameters."
  std::unique_ptr<const Config> modelopt_;  // of hf_quant_config.json, where it counts
  bool assumes_quantization_ = false;
};

}  // namespace hyb::models
