#include "app/bench/cases.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "app/options/options.h"
#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

constexpr std::int64_t list_count_max = 1 << 24;
constexpr std::size_t counts_max = 1000;

/// Takes a number off the front of `text`.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value > list_count_max) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

struct Range {
  std::int64_t first, last;
  std::int64_t step = 1;
  std::int64_t factor = 1;
};

/// N, N-N, N-N+N or N-N*N; nothing for other texts and for ranges that never end.
std::optional<Range> parse_range(std::string_view text) {
  const auto first = take_number(text);
  if (!first) return std::nullopt;
  Range range = {.first = *first, .last = *first};
  if (text.empty()) return range;
  if (text.front() != '-') return std::nullopt;
  text.remove_prefix(1);
  const auto last = take_number(text);
  if (!last || *last < *first) return std::nullopt;
  range.last = *last;
  if (text.empty()) return range;
  const char sign = text.front();
  text.remove_prefix(1);
  const auto step = take_number(text);
  if (!step || !text.empty()) return std::nullopt;
  if (sign == '+' && *step > 0) {
    range.step = *step;
    return range;
  }
  if (sign != '*' || *step < 2 || *first == 0) return std::nullopt;
  range.step = 0;
  range.factor = *step;
  return range;
}

}  // namespace

std::vector<std::int32_t> parse_counts(std::span<const std::string> texts,
                                       std::string_view option) {
  std::vector<std::int32_t> counts;
  for (const std::string& text : texts) {
    for (const std::string_view one : split(text, ',')) {
      const auto range = parse_range(one);
      if (!range) {
        throw Error(ErrorKind::usage,
                    fmt::format("{}: '{}' is not a number up to {}, nor a range like 128-1024+128 "
                                "or 64-4096*2",
                                option, one, list_count_max));
      }
      for (std::int64_t value = range->first; value <= range->last;
           value = value * range->factor + range->step) {
        if (counts.size() == counts_max) {
          throw Error(ErrorKind::usage,
                      fmt::format("{}: more than {} numbers", option, counts_max));
        }
        counts.push_back(static_cast<std::int32_t>(value));
      }
    }
  }
  return counts;
}

std::pair<std::int32_t, std::int32_t> parse_pair(const std::string& text, std::string_view option) {
  std::string_view rest = text;
  const auto first = take_number(rest);
  if (first && !rest.empty() && rest.front() == ',') {
    rest.remove_prefix(1);
    const auto second = take_number(rest);
    if (second && rest.empty() && *first > 0 && *second > 0) {
      return {static_cast<std::int32_t>(*first), static_cast<std::int32_t>(*second)};
    }
  }
  throw Error(ErrorKind::usage,
              fmt::format("{}: '{}' is not PP,TG, two positive numbers", option, text));
}

namespace {

/// `tokens` of the sequence, from `position`, chunk by chunk.
void add_chunks(std::vector<BenchStep>& steps, std::int32_t sequence, std::int32_t position,
                std::int32_t tokens, std::int32_t chunk_tokens, bool wants_logits) {
  for (std::int32_t done = 0; done < tokens;) {
    const std::int32_t count = std::min(chunk_tokens, tokens - done);
    done += count;
    steps.push_back({.first = sequence,
                     .shape = {.sequences = 1,
                               .tokens = count,
                               .position = position + done - count,
                               .rows = wants_logits && done == tokens ? 1 : 0}});
  }
}

}  // namespace

std::string graphs_text(const std::optional<models::GraphOptions>& mode) {
  return mode ? std::string(word_of(words::graphs, *mode)) : "";
}

std::string BenchCase::name() const {
  std::string name;
  if (prompt > 0) name = fmt::format("pp{}", prompt);
  if (generate > 0) name += fmt::format("{}tg{}", name.empty() ? "" : "+", generate);
  if (depth > 0) name += fmt::format(" @ d{}", depth);
  return name;
}

std::vector<BenchCase> cases_of(const BenchGrid& grid) {
  std::vector<BenchCase> cases;
  const auto add = [&](BenchCase test) {
    for (const auto& graphs : grid.graphs) {
      test.graphs = graphs;
      cases.push_back(test);
    }
  };
  for (const std::int32_t depth : grid.depths) {
    for (const std::int32_t prompt : grid.prompts) {
      if (prompt > 0) add({.prompt = prompt, .depth = depth});
    }
    for (const std::int32_t batch : grid.batches) {
      for (const std::int32_t generate : grid.generations) {
        if (generate > 0) add({.generate = generate, .depth = depth, .batch = batch});
      }
      for (const auto& pair : grid.pairs) {
        add({.prompt = pair.first, .generate = pair.second, .depth = depth, .batch = batch});
      }
    }
  }
  return cases;
}

std::vector<BenchStep> depth_steps(const BenchCase& test, std::int32_t sequence, std::int32_t from,
                                   std::int32_t chunk_tokens) {
  std::vector<BenchStep> steps;
  add_chunks(steps, sequence, from, test.depth - from, chunk_tokens, false);
  return steps;
}

std::vector<BenchStep> timed_steps(const BenchCase& test, std::int32_t chunk_tokens) {
  std::vector<BenchStep> steps;
  for (std::int32_t sequence = 0; sequence < test.batch; ++sequence) {
    add_chunks(steps, sequence, test.depth, test.prompt, chunk_tokens, true);
  }
  for (std::int32_t i = 0; i < test.generate; ++i) {
    steps.push_back({.first = 0,
                     .shape = {.sequences = test.batch,
                               .tokens = 1,
                               .position = test.depth + test.prompt + i,
                               .rows = 1}});
  }
  return steps;
}

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

std::optional<double> RequestCase::right_drafts() const {
  if (spec_acceptance.empty() || spec_acceptance == no_drafts) return std::nullopt;
  const double share = parse_number<double>(spec_acceptance).value_or(-1);
  if (!(share >= 0 && share <= 1)) {
    throw Error(ErrorKind::usage,
                fmt::format("--spec-acceptance: '{}' is neither off nor a number from 0 to 1",
                            spec_acceptance));
  }
  return share;
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
  vary(cases, &RequestCase::spec_acceptance, grid.spec_acceptances);
  vary(cases, &RequestCase::lanes, grid.lanes);
  return cases;
}

std::vector<double> parse_rates(const std::string& text) {
  std::vector<double> rates;
  for (const std::string_view one : split(text, ',')) {
    const double rate = parse_number<double>(one).value_or(0);
    if (!(rate > 0)) {
      throw Error(
          ErrorKind::usage,
          fmt::format("--request-rate: '{}' is not requests per second above 0, nor inf", one));
    }
    rates.push_back(rate);
  }
  return rates;
}

}  // namespace hyb::app
