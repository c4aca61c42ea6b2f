#include "app/batch/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "app/prompt.h"
#include "core/base/common_tokens.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

using Depths = std::vector<std::int32_t>;

/// What neighbours in `order` have in common; of the first one, nothing.
Depths common_with_last(std::span<const std::vector<TokenId>> prompts,
                        std::span<const std::size_t> order) {
  Depths common(order.size(), 0);
  for (std::size_t i = 1; i < order.size(); ++i) {
    common[i] = common_tokens(prompts[order[i - 1]], prompts[order[i]]);
  }
  return common;
}

/// Per place, the depths of the nodes with two descendants or more of which it is the first; the
/// deepest first. A node is an interval of sorted prompts: it ends where less is in common.
std::vector<Depths> nodes_begun(std::span<const std::int32_t> common) {
  struct Node {
    std::size_t begin;
    std::int32_t depth;
  };
  std::vector<Depths> begun(common.size());
  std::vector<Node> open;
  for (std::size_t i = 1; i <= common.size(); ++i) {
    const std::int32_t depth = i < common.size() ? common[i] : 0;
    std::size_t begin = i - 1;
    while (!open.empty() && open.back().depth > depth) {
      begin = open.back().begin;
      begun[begin].push_back(open.back().depth);
      open.pop_back();
    }
    if (depth > 0 && (open.empty() || open.back().depth < depth)) open.push_back({begin, depth});
  }
  return begun;
}

}  // namespace

PrefixPlan plan_prefixes(std::span<const std::vector<TokenId>> prompts) {
  std::vector<std::size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return prompts[a] < prompts[b]; });
  const Depths common = common_with_last(prompts, order);
  std::vector<Depths> begun = nodes_begun(common);
  PrefixPlan plan;
  Depths path;  // of the cuts made so far, those on the way to the prompt at hand
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto length = static_cast<std::int32_t>(prompts[order[i]].size());
    while (!path.empty() && path.back() > common[i]) path.pop_back();
    plan.prompt_tokens += length;
    plan.sharable_tokens += std::max(std::min(common[i], length - 1), 0);
    PrefixPlan::Entry entry{.prompt = order[i], .cuts = {}};
    for (auto depth = begun[i].rbegin(); depth != begun[i].rend(); ++depth) {
      const std::int32_t cut = std::min(*depth, length - 1);
      if (cut - (path.empty() ? 0 : path.back()) < cut_tokens_min) continue;
      entry.cuts.push_back(cut);
      path.push_back(cut);
    }
    plan.entries.push_back(std::move(entry));
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
      prompts.push_back(maker_.make(line).prompt);
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
    lines.push_back(
        {.line = planned[entry.prompt], .cuts = std::move(entry.cuts), .is_planned = true});
  }
  return lines;
}

}  // namespace hyb::app
