#include "app/replay/replay.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <map>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include "app/options/options.h"
#include "core/base/error.h"

namespace hyb::app {

ReplayRun replay(std::span<const ReplayRequest> trace, const ReplayShape& shape,
                 const PolicyOptions& options) {
  ReplayRun run = {.options = options, .requests = {}, .counters = {}};
  run.requests.reserve(trace.size());
  const std::unique_ptr<CachePolicy> policy = make_policy(options, shape);
  for (const ReplayRequest& request : trace) {
    const RequestTokens tokens(request);
    const Served served = policy->serve(tokens);
    run.requests.push_back({.prompt_tokens = tokens.prompt_length, .served = served});
    run.prompt_tokens += tokens.prompt_length;
    run.reused_tokens += served.reused;
    run.matched_tokens += served.matched;
    run.flops_total += shape.flops.of(tokens.prompt_length);
    run.flops_saved += shape.flops.of(served.reused);
    run.seconds_total += shape.seconds.of(tokens.prompt_length);
    run.seconds_saved += shape.seconds.of(served.reused);
  }
  run.counters = policy->counters();
  return run;
}

std::vector<ReplayRun> replay_all(std::span<const ReplayRequest> trace, const ReplayShape& shape,
                                  std::span<const PolicyOptions> options, int threads) {
  std::vector<ReplayRun> runs(options.size());
  std::vector<std::exception_ptr> failures(options.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < options.size(); i = next++) {
      try {
        runs[i] = replay(trace, shape, options[i]);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 1; i < threads; ++i) workers.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return runs;
}

namespace {

std::int32_t common_prefix(std::span<const Segment> one, std::span<const Segment> other) {
  std::int32_t common = 0;
  for (std::size_t i = 0; i < std::min(one.size(), other.size()); ++i) {
    if (one[i].id != other[i].id) break;
    common += std::min(one[i].length, other[i].length);
    if (one[i].length != other[i].length) break;
  }
  return common;
}

void add_plans(std::span<ReplayRequest> ordered) {
  std::vector<std::int32_t> lengths, common;
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    lengths.push_back(static_cast<std::int32_t>(tokens_of(ordered[i].prompt)));
    common.push_back(i == 0 ? 0 : common_prefix(ordered[i - 1].prompt, ordered[i].prompt));
  }
  std::vector<PromptPlan> plans = plan_depth_first(lengths, common);
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    std::vector<Segment> whole = ordered[i].prompt;
    whole.insert(whole.end(), ordered[i].output.begin(), ordered[i].output.end());
    const bool goes_on =
        i + 1 < ordered.size() && common_prefix(whole, ordered[i + 1].prompt) > lengths[i];
    if (!goes_on) ordered[i].plan = std::move(plans[i]);
  }
}

std::vector<PolicyKind> kinds_of(const std::vector<std::string>& names) {
  std::vector<PolicyKind> kinds;
  for (const std::string& name : names) {
    if (name == "all") {
      for (const auto& one : words::policy) kinds.push_back(one.value);
    } else if (const auto kind = value_of(words::policy, name)) {
      kinds.push_back(*kind);
    } else {
      std::string known;
      for (const auto& one : words::policy) known += fmt::format("{}, ", one.word);
      throw Error(ErrorKind::usage,
                  fmt::format("--policy {}: there is no policy of this name; there are {}all", name,
                              known));
    }
  }
  return kinds;
}

std::int64_t budget_of(const std::string& text, const char* option = "--budget") {
  try {
    const MemoryBudget budget = parse_memory(text);
    constexpr std::size_t least = 1'000'000;  // less is a number without its unit
    if (budget.kind == MemoryBudget::Kind::bytes && budget.bytes >= least) {
      return static_cast<std::int64_t>(budget.bytes);
    }
  } catch (const Error&) {  // speaks of another option
  }
  throw Error(ErrorKind::usage,
              fmt::format("{} {}: give 1MB or more, such as 2GB or 512MiB", option, text));
}

Precision precision_of(const std::string& name) {
  if (const auto precision = value_of(words::snapshots, name)) return *precision;
  throw Error(ErrorKind::usage, fmt::format("--snapshots {}: exact or int8", name));
}

void add_variants(const PolicyOptions& base, const PolicyLists& lists,
                  std::vector<PolicyOptions>& options) {
  const bool has_ratio = base.kind == PolicyKind::sglang;
  const bool has_snapshots = base.kind != PolicyKind::none && base.kind != PolicyKind::bound;
  const std::size_t ratios = has_ratio ? lists.ratios.size() : 1;
  const std::size_t formats = has_snapshots ? lists.snapshots.size() : 1;
  for (std::size_t r = 0; r < ratios; ++r) {
    for (std::size_t f = 0; f < formats; ++f) {
      PolicyOptions variant = base;
      if (has_ratio) variant.ratio = lists.ratios[r];
      if (has_snapshots) variant.snapshots = precision_of(lists.snapshots[f]);
      options.push_back(variant);
      const bool is_tree = base.kind == PolicyKind::lru || base.kind == PolicyKind::gd;
      if (!is_tree || lists.host_tier.empty()) continue;
      variant.host_bytes = budget_of(lists.host_tier, "--host-tier");
      options.push_back(variant);
    }
  }
}

/// The policy of another system as `hyb bench` asks for it.
PolicyOptions simulated_policy(const std::string& name, std::size_t budget_bytes) {
  PolicyOptions options = policy_options({.policies = {name},
                                          .snapshots = {"exact"},
                                          .budgets = {"1GB"},
                                          .ratios = {0.9},
                                          .block_tokens = 32,
                                          .sglang_states = "turn-end"})
                              .front();
  options.budget_bytes = static_cast<std::int64_t>(budget_bytes);
  return options;
}

class PolicyPrediction final : public ReusePrediction {
 public:
  PolicyPrediction(const PolicyOptions& options, const ReplayShape& shape)
      : shape_(shape), policy_(make_policy(options, shape_)) {}

  std::int32_t reused(const ReplayRequest& request) override {
    return policy_->serve(served_.emplace_back(request)).reused;
  }

 private:
  ReplayShape shape_;
  std::deque<RequestTokens> served_;  ///< a policy may keep what it served
  std::unique_ptr<CachePolicy> policy_;
};

void check_simulated_policy(const std::string& name) {
  // Each row of a table of bench is of one policy.
  if (name == "all") throw Error(ErrorKind::usage, "--policy all: hyb bench takes them by name");
  static_cast<void>(simulated_policy(name, 1));
}

PredictReuse reuse_predictor(const std::string& model, DType kv_dtype,
                             const Environment& environment) {
  const ReplayShape shape = parse_shape(model, {.kv_dtype = kv_dtype}, environment);
  return [shape](const std::string& policy, std::size_t budget_bytes) {
    return std::make_unique<PolicyPrediction>(simulated_policy(policy, budget_bytes), shape);
  };
}

}  // namespace

std::vector<ReplayRequest> in_depth_first_order(std::vector<ReplayRequest> trace) {
  // A segment is known by the place where it first appears, so that branches keep their order.
  std::map<std::int64_t, std::int64_t> seen;
  for (const ReplayRequest& request : trace) {
    for (const Segment& segment : request.prompt) {
      seen.try_emplace(segment.id, static_cast<std::int64_t>(seen.size()));
    }
  }
  std::vector<std::size_t> order(trace.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto comes_before = [&](std::size_t a, std::size_t b) {
    return std::lexicographical_compare(trace[a].prompt.begin(), trace[a].prompt.end(),
                                        trace[b].prompt.begin(), trace[b].prompt.end(),
                                        [&](const Segment& left, const Segment& right) {
                                          return std::pair(seen.at(left.id), left.length) <
                                                 std::pair(seen.at(right.id), right.length);
                                        });
  };
  std::stable_sort(order.begin(), order.end(), comes_before);
  std::vector<ReplayRequest> ordered;
  ordered.reserve(trace.size());
  for (const std::size_t i : order) {
    ordered.push_back(std::move(trace[i]));
    ordered.back().time_s = 0;
  }
  add_plans(ordered);
  return ordered;
}

std::vector<PolicyOptions> policy_options(const PolicyLists& lists) {
  for (const double ratio : lists.ratios) {
    if (!(ratio > 0) || ratio > 1000) {
      throw Error(ErrorKind::usage, fmt::format("--ratio {}: from above 0 to 1000", ratio));
    }
  }
  std::vector<PolicyOptions> options;
  for (const std::string& budget : lists.budgets) {
    for (const PolicyKind kind : kinds_of(lists.policies)) {
      const PolicyOptions base = {.kind = kind,
                                  .budget_bytes = budget_of(budget),
                                  .block_tokens = lists.block_tokens,
                                  .prompt_end_snapshots = lists.sglang_states == "both"};
      add_variants(base, lists, options);
    }
  }
  return options;
}

std::string label_of(const PolicyOptions& options) {
  std::string label(word_of(words::policy, options.kind));
  if (options.kind == PolicyKind::vllm_plus) label += fmt::format(" {}", options.block_tokens);
  if (options.kind == PolicyKind::sglang) label += fmt::format(" {}", options.ratio);
  if (options.snapshots == Precision::int8) label += " int8";
  if (options.host_bytes > 0) label += " + host tier";
  return label;
}

PolicyLab policy_lab() { return {.check = check_simulated_policy, .predictor = reuse_predictor}; }

}  // namespace hyb::app
