#include "app/request/sampling_options.h"

#include <algorithm>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/options/options.h"
#include "app/request/generation_config.h"
#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

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

/// A text in place of the seed: -sys, or -s, was to be the system prompt.
std::string check_seed_flag(const std::string& text) {
  const std::string wrong = check_seed(text);
  const bool is_text = text.starts_with("ys") || text.find(' ') != std::string::npos;
  return wrong.empty() || !is_text ? wrong : wrong + "; a system prompt is --system TEXT, or -sys";
}

template <typename T>
void add_parameter(CLI::App& cli, const Parameter& parameter, GenerationOptions& options) {
  std::string flags = "--" + std::string(parameter.name);
  std::replace(flags.begin(), flags.end(), '_', '-');
  CLI::Option* const option = cli.add_option_function<T>(
      flags + parameter.more_flags,
      [&options, &parameter](const T& value) { options.parameters[parameter.name] = value; },
      parameter.help);
  if constexpr (std::is_same_v<T, std::uint64_t>) {
    option->check(check_seed_flag);
  } else {
    option->check(in_range(parameter.range));
  }
}

}  // namespace

void add_generation_options(CLI::App& cli, GenerationOptions& options) {
  cli.add_option("-n,--max-tokens,--n-predict", options.max_tokens,
                 "end the answer after this many tokens; -1: where the model ends it")
      ->check(CLI::Validator(
          [](const std::string& text) {
            std::string wrong = text == "-1" ? "" : in_range(ranges::max_tokens)(text);
            return wrong.starts_with("is ") ? wrong.insert(3, "-1 or ") : wrong;
          },
          "", ""));
  for (const Parameter& parameter : sampling_parameters) {
    std::visit([&]<typename T>(T SamplingNumbers::*) { add_parameter<T>(cli, parameter, options); },
               parameter.member);
  }
  cli.add_option("--logit-bias", options.logit_bias,
                 "add BIAS to the logit of the token ID; may be repeated")
      ->type_name("ID=BIAS")
      ->allow_extra_args(false);
  cli.add_option("--stop", options.stop,
                 "end the answer before this text; may be repeated. In a thought it ends nothing")
      ->allow_extra_args(false);
  cli.add_flag("--ignore-eos", options.ignore_eos, "go on after the model's end-of-answer token");
  add_rule_options(cli, options.rule);
}

SamplingParams sampling_of(const GenerationOptions& options, const Json& config) {
  SamplingParams params = generation_defaults(config, options).sampling;
  for (const auto& [name, value] : options.parameters) find_parameter(name)->set(params, value);
  for (const std::string& text : options.logit_bias) params.bias.push_back(parse_bias(text));
  return params;
}

}  // namespace hyb::app
