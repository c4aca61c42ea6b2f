#include "app/chat/settings.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "core/base/error.h"

namespace hyb::app {
namespace {

template <typename T>
void assign(std::optional<T>& field, std::string_view name, std::string_view value) {
  if (value == "default") {
    field.reset();
    return;
  }
  T number{};
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), number);
  bool is_good = failed == std::errc() && end == value.data() + value.size();
  if constexpr (std::is_floating_point_v<T>) is_good = is_good && std::isfinite(number);
  if (!is_good) {
    throw Error(ErrorKind::usage, fmt::format("/set {}: '{}' is not {}", name, value,
                                              std::is_floating_point_v<T> ? "a number"
                                              : std::is_unsigned_v<T> ? "a whole number from 0 on"
                                                                      : "a whole number in range"));
  }
  field = number;
}

struct Row {
  std::string_view name;
  void (*assign)(GenerationOptions& options, std::string_view name, std::string_view value);
  std::string (*show)(const GenerationOptions& options, const SamplingParams& params);
};

/// A field of GenerationOptions that sampling_of() turns into one of SamplingParams.
template <auto asked, auto used>
constexpr Row row(std::string_view name) {
  return {name,
          [](GenerationOptions& options, std::string_view shown, std::string_view value) {
            assign(options.*asked, shown, value);
          },
          [](const GenerationOptions&, const SamplingParams& params) {
            return fmt::format("{}", params.*used);
          }};
}

using G = GenerationOptions;
using S = SamplingParams;

constexpr std::array rows = {
    row<&G::temperature, &S::temperature>("temperature"),
    row<&G::top_k, &S::top_k>("top_k"),
    row<&G::top_p, &S::top_p>("top_p"),
    row<&G::min_p, &S::min_p>("min_p"),
    row<&G::repetition_penalty, &S::repetition_penalty>("repetition_penalty"),
    row<&G::frequency_penalty, &S::frequency_penalty>("frequency_penalty"),
    row<&G::presence_penalty, &S::presence_penalty>("presence_penalty"),
    row<&G::seed, &S::seed>("seed"),
    Row{"max_tokens",
        [](G& options, std::string_view name, std::string_view value) {
          assign(options.max_tokens, name, value);
          if (options.max_tokens.value_or(1) >= 1) return;
          throw Error(ErrorKind::usage,
                      fmt::format("max_tokens: must be 1 or more, got {}", *options.max_tokens));
        },
        [](const G& options, const S&) {
          return options.max_tokens ? fmt::format("{}", *options.max_tokens)
                                    : std::string("no limit but the conversation's");
        }},
};

const Row& row_of(std::string_view name) {
  std::string names;
  for (const Row& row : rows) {
    if (row.name == name) return row;
    names.append(names.empty() ? "" : ", ").append(row.name);
  }
  throw Error(ErrorKind::usage, fmt::format("/set: no '{}'; there are {}", name, names));
}

std::pair<std::string_view, std::string_view> split(std::string_view text) {
  const std::size_t space = text.find_first_of(" \t=");
  if (space == std::string_view::npos) return {text, {}};
  std::string_view value = text.substr(space);
  value.remove_prefix(std::min(value.find_first_not_of(" \t="), value.size()));
  return {text.substr(0, space), value};
}

}  // namespace

Settings::Settings(GenerationOptions options, const Json& generation_config, std::int32_t vocab)
    : generation_config_(&generation_config), options_(std::move(options)), vocab_(vocab) {
  check(sampling_of(options_, *generation_config_), vocab_);
}

std::string Settings::set(std::string_view argument) {
  const SamplingParams now = sampling_of(options_, *generation_config_);
  const auto [name, value] = split(argument);
  if (name.empty()) {
    std::string all;
    for (const Row& row : rows)
      all += fmt::format("  {:<20} {}\n", row.name, row.show(options_, now));
    return all;
  }
  const Row& row = row_of(name);
  if (!value.empty()) {
    GenerationOptions changed = options_;
    row.assign(changed, name, value);
    check(sampling_of(changed, *generation_config_), vocab_);
    options_ = std::move(changed);
  }
  return fmt::format("  {:<20} {}\n", row.name,
                     row.show(options_, sampling_of(options_, *generation_config_)));
}

}  // namespace hyb::app
