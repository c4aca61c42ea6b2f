#include "app/bench/request_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "core/base/error.h"

namespace hyb::app {
namespace {

constexpr std::array<std::string_view, 6> dataset_names = {
    "random", "generated-shared-prefix", "send_one", "corpus", "file", "trace"};
constexpr std::array<std::string_view, 3> condition_names = {"cold", "warm", "turn-2"};

/// The place of `name`; throws where it is not among them.
std::size_t place_of(const std::string& name, std::span<const std::string_view> names,
                     const char* option) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  throw Error(ErrorKind::usage,
              fmt::format("{}: '{}' is none of {}", option, name, fmt::join(names, ", ")));
}

/// Every case with every value in that field.
template <typename T>
void vary(std::vector<RequestCase>& cases, T RequestCase::*field, const std::vector<T>& values) {
  if (values.empty()) return;
  std::vector<RequestCase> all;
  for (const RequestCase& one : cases) {
    for (const T& value : values) {
      all.push_back(one);
      all.back().*field = value;
    }
  }
  cases = std::move(all);
}

}  // namespace

std::string_view name_of(Dataset dataset) {
  return dataset_names[static_cast<std::size_t>(dataset)];
}

std::string_view name_of(Condition condition) {
  return condition_names[static_cast<std::size_t>(condition)];
}

Dataset parse_dataset(const std::string& name) {
  return static_cast<Dataset>(place_of(name, dataset_names, "--dataset-name"));
}

std::vector<Condition> parse_conditions(const std::vector<std::string>& names) {
  std::vector<Condition> conditions;
  for (const std::string& name : names) {
    conditions.push_back(static_cast<Condition>(place_of(name, condition_names, "--condition")));
  }
  return conditions;
}

std::string RequestCase::workload() const {
  const std::string name(name_of(dataset));
  switch (dataset) {
    case Dataset::random:
    case Dataset::corpus:
      return system_tokens > 0
                 ? fmt::format("{} {}+{}+{}", name, system_tokens, input_tokens, output_tokens)
                 : fmt::format("{} {}+{}", name, input_tokens, output_tokens);
    case Dataset::generated_shared_prefix:
      return fmt::format("{} {}x{}x{}+{}+{}", name, groups, prompts, system_tokens, input_tokens,
                         output_tokens);
    case Dataset::send_one:
      return fmt::format("{} +{}", name, output_tokens);
    case Dataset::file:
    case Dataset::trace:
      break;
  }
  return name;
}

std::string RequestCase::experiment() const {
  if (is_closed_loop()) return fmt::format("closed loop, {} at once", concurrency);
  const std::string limit = concurrency > 0 ? fmt::format(", {} at once", concurrency) : "";
  if (std::isinf(request_rate)) return "open loop, all at once";
  return fmt::format("open loop, {:g}/s{}", request_rate, limit);
}

std::vector<RequestCase> cases_of(const RequestCase& base, const RequestGrid& grid) {
  std::vector<RequestCase> cases = {base};
  vary(cases, &RequestCase::groups, grid.groups);
  vary(cases, &RequestCase::system_tokens, grid.system_tokens);
  vary(cases, &RequestCase::input_tokens, grid.input_tokens);
  vary(cases, &RequestCase::output_tokens, grid.output_tokens);
  vary(cases, &RequestCase::prompts, grid.prompts);
  vary(cases, &RequestCase::request_rate, grid.request_rates);
  vary(cases, &RequestCase::concurrency, grid.concurrencies);
  vary(cases, &RequestCase::graphs, grid.graphs);
  vary(cases, &RequestCase::policy, grid.policies);
  vary(cases, &RequestCase::condition, grid.conditions);
  return cases;
}

std::vector<double> parse_rates(const std::string& text) {
  std::vector<double> rates;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string one = text.substr(begin, end - begin);
    double rate = 0;
    const auto [rest, error] = std::from_chars(one.data(), one.data() + one.size(), rate);
    const bool is_number = error == std::errc() && rest == one.data() + one.size();
    if (!is_number || !(rate > 0)) {
      throw Error(
          ErrorKind::usage,
          fmt::format("--request-rate: '{}' is not requests per second above 0, nor inf", one));
    }
    rates.push_back(rate);
    begin = end + 1;
  }
  return rates;
}

}  // namespace hyb::app
