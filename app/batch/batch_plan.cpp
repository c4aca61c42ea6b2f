#include "app/batch/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "app/prompt.h"
#include "core/base/common_tokens.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

using Lengths = std::vector<std::int32_t>;

/// What neighbours in `order` have in common; of the first one, nothing.
Lengths common_with_last(std::span<const std::vector<TokenId>> prompts,
                         std::span<const std::size_t> order) {
  Lengths common(order.size(), 0);
  for (std::size_t i = 1; i < order.size(); ++i) {
    common[i] = common_tokens(prompts[order[i - 1]], prompts[order[i]]);
  }
  return common;
}

}  // namespace

PrefixPlan plan_prefixes(std::span<const std::vector<TokenId>> prompts) {
  std::vector<std::size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return prompts[a] < prompts[b]; });
  const Lengths common = common_with_last(prompts, order);
  Lengths lengths;
  for (const std::size_t prompt : order) {
    lengths.push_back(static_cast<std::int32_t>(prompts[prompt].size()));
  }
  std::vector<PromptPlan> plans = plan_depth_first(lengths, common);
  PrefixPlan plan;
  for (std::size_t i = 0; i < order.size(); ++i) {
    plan.prompt_tokens += lengths[i];
    plan.sharable_tokens += std::max(std::min(common[i], lengths[i] - 1), 0);
    plan.entries.push_back({.prompt = order[i], .plan = std::move(plans[i])});
  }
  return plan;
}

BatchPlanner::BatchPlanner(RequestMaker& maker, const InputFile& input,
                           std::span<const std::uint32_t> todo, Options options)
    : maker_(maker), input_(input), todo_(todo), options_(std::move(options)) {}

std::vector<PlannedLine> BatchPlanner::all_in_order() {
  std::vector<PlannedLine> lines;
  for (; next_ < todo_.size(); ++next_) lines.push_back({.line = todo_[next_]});
  return lines;
}

std::vector<PlannedLine> BatchPlanner::next() {
  if (options_.order == BatchOrder::file) return all_in_order();
  std::vector<PlannedLine> lines;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::uint32_t> planned;
  std::int64_t tokens = 0;
  while (next_ < todo_.size() && tokens < options_.portion_tokens_max) {
    if (options_.is_stopped()) return {};
    const std::uint32_t index = todo_[next_++];
    const RequestLine line = input_.read(input_.lines()[index]);
    try {
      if (line.failure) throw Error(ErrorKind::usage, line.failure->message);
      prompts.push_back(maker_.make(line).request.prompt);
      planned.push_back(index);
      tokens += static_cast<std::int64_t>(prompts.back().size());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage && error.kind() != ErrorKind::model) throw;
      lines.push_back({.line = index});  // fails again when its turn comes, and is told then
    }
    options_.progress(static_cast<std::int64_t>(next_));
  }
  PrefixPlan plan = plan_prefixes(prompts);
  prompt_tokens_ += plan.prompt_tokens;
  sharable_tokens_ += plan.sharable_tokens;
  for (PrefixPlan::Entry& entry : plan.entries) {
    lines.push_back({.line = planned[entry.prompt], .plan = std::move(entry.plan)});
  }
  return lines;
}

}  // namespace hyb::app
