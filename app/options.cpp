#include "app/options.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace hyb::app {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr std::array units = {
    Unit{"", 1},         Unit{"B", 1},        Unit{"KB", 1e3},     Unit{"MB", 1e6},
    Unit{"GB", 1e9},     Unit{"TB", 1e12},    Unit{"KiB", 0x1p10}, Unit{"MiB", 0x1p20},
    Unit{"GiB", 0x1p30}, Unit{"TiB", 0x1p40}, Unit{"K", 0x1p10},   Unit{"M", 0x1p20},
    Unit{"G", 0x1p30},   Unit{"T", 0x1p40},
};

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

LogitBias parse_bias(const std::string& text) {
  const std::size_t equals = text.find('=');
  const auto token = parse_number<std::int32_t>(std::string_view(text).substr(0, equals));
  const auto bias = equals == std::string::npos
                        ? std::nullopt
                        : parse_number<float>(std::string_view(text).substr(equals + 1));
  if (!token || !bias) {
    throw Error(ErrorKind::usage, "--logit-bias: '" + text + "' is not ID=BIAS, as in 42=-1.5");
  }
  return {TokenId{*token}, *bias};
}

/// A number of generation_config.json, when it is there and is one.
template <typename T>
std::optional<T> from_config(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || !found->is_number()) return std::nullopt;
  return found->get<T>();
}

bool wants_sampling(const Json& config) {
  const auto found = config.find("do_sample");
  return found != config.end() && found->is_boolean() && found->get<bool>();
}

}  // namespace

MemoryBudget parse_memory(const std::string& text) {
  if (text == "auto") return {};
  const std::size_t digits = text.find_first_not_of("0123456789.");
  const auto number = parse_number<double>(std::string_view(text).substr(0, digits));
  const std::string_view unit =
      digits == std::string::npos ? std::string_view() : std::string_view(text).substr(digits);
  if (number && std::isfinite(*number) && *number > 0) {
    if (unit == "%" && *number <= 100) {
      return {.kind = MemoryBudget::Kind::share, .share = *number / 100};
    }
    for (const Unit& known : units) {
      if (unit == known.name && *number * known.bytes < 0x1p62) {
        return {.kind = MemoryBudget::Kind::bytes,
                .bytes = static_cast<std::size_t>(*number * known.bytes)};
      }
    }
  }
  throw Error(ErrorKind::usage,
              "--memory: '" + text + "' is not a size like 8GiB, 500MB or 80%, and not auto");
}

void add_model_options(CLI::App& cli, ModelOptions& options, bool positional_model) {
  if (positional_model) {
    cli.add_option("model", options.model,
                   "folder, org/name[@revision] in the Hugging Face cache, or demo")
        ->capture_default_str();
  }
  cli.add_option("--device", options.device, "cpu or cuda")->capture_default_str();
  cli.add_option("--threads", options.threads, "compute threads; 0: all this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  cli.add_option("--context", options.context,
                 "most tokens of a sequence, prompt and answer; 0: the model's, as far as it fits")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  cli.add_option("--memory", options.memory, "bounds all that hyb holds: 8GiB, 500MB, 80%, or auto")
      ->capture_default_str();
  cli.add_option("--dtype", options.dtype, "activations and packed weights: auto, bf16 or f32")
      ->check(CLI::IsMember({"auto", "bf16", "f32"}))
      ->capture_default_str();
  cli.add_option("--random-weights", options.random_weights,
                 "synthetic weights from this seed; needs only config.json");
}

void add_generation_options(CLI::App& cli, GenerationOptions& options) {
  cli.add_option("-n,--max-tokens", options.max_tokens, "stop after so many tokens")
      ->check(CLI::Range(1, 1 << 24));
  cli.add_option("--temperature", options.temperature, "0 is greedy");
  cli.add_option("--top-k", options.top_k, "draw from the k likeliest; 0: all");
  cli.add_option("--top-p", options.top_p, "draw from the likeliest that reach this probability");
  cli.add_option("--min-p", options.min_p,
                 "drop what is less likely than min-p times the likeliest");
  cli.add_option("--repetition-penalty", options.repetition_penalty,
                 "divides the logits of tokens seen before");
  cli.add_option("--frequency-penalty", options.frequency_penalty, "per occurrence in the answer");
  cli.add_option("--presence-penalty", options.presence_penalty, "once per token of the answer");
  cli.add_option("--seed", options.seed, "of the random draws");
  cli.add_option("--logit-bias", options.logit_bias, "ID=BIAS, added to a token's logit")
      ->allow_extra_args(false);
  cli.add_option("--stop", options.stop, "end the answer before this text; may be repeated")
      ->allow_extra_args(false);
  cli.add_flag("--ignore-eos", options.ignore_eos, "go on after the model's end-of-answer token");
}

SamplingParams sampling_of(const GenerationOptions& options, const Json& config) {
  SamplingParams params;
  if (wants_sampling(config)) {
    params.temperature = from_config<float>(config, "temperature").value_or(1.0F);
    params.top_k = from_config<std::int32_t>(config, "top_k").value_or(params.top_k);
    params.top_p = from_config<float>(config, "top_p").value_or(params.top_p);
    params.min_p = from_config<float>(config, "min_p").value_or(params.min_p);
  }
  params.repetition_penalty =
      from_config<float>(config, "repetition_penalty").value_or(params.repetition_penalty);

  const auto take = [](auto& field, const auto& flag) {
    if (flag) field = *flag;
  };
  take(params.temperature, options.temperature);
  take(params.top_k, options.top_k);
  take(params.top_p, options.top_p);
  take(params.min_p, options.min_p);
  take(params.repetition_penalty, options.repetition_penalty);
  take(params.frequency_penalty, options.frequency_penalty);
  take(params.presence_penalty, options.presence_penalty);
  take(params.seed, options.seed);
  for (const std::string& text : options.logit_bias) params.bias.push_back(parse_bias(text));
  return params;
}

std::string bytes_text(std::size_t bytes) {
  constexpr const char* names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(names)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, names[unit]);
}

}  // namespace hyb::app
