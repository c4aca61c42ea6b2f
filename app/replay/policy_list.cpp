#include "app/replay/policy_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/options.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

constexpr PolicyKind all_kinds[] = {
    PolicyKind::none,    PolicyKind::vllm_plus, PolicyKind::sglang_plus,
    PolicyKind::marconi, PolicyKind::vllm,      PolicyKind::sglang,
    PolicyKind::lru,     PolicyKind::gd,        PolicyKind::bound};

std::vector<PolicyKind> kinds_of(const std::vector<std::string>& names) {
  std::vector<PolicyKind> kinds;
  for (const std::string& name : names) {
    if (name == "all") {
      kinds.insert(kinds.end(), std::begin(all_kinds), std::end(all_kinds));
    } else if (const auto kind = policy_kind_of(name)) {
      kinds.push_back(*kind);
    } else {
      std::string known;
      for (const PolicyKind one : all_kinds) known += fmt::format("{}, ", name_of(one));
      throw Error(
          ErrorKind::usage,
          fmt::format("--policy {}: there is none of this name; there are {}all", name, known));
    }
  }
  return kinds;
}

std::int64_t budget_of(const std::string& text) {
  try {
    const MemoryBudget budget = parse_memory(text);
    if (budget.kind == MemoryBudget::Kind::bytes) return static_cast<std::int64_t>(budget.bytes);
  } catch (const Error&) {  // speaks of another option
  }
  throw Error(ErrorKind::usage,
              fmt::format("--budget {}: give bytes, such as 2GB or 512MiB", text));
}

SnapshotFormat format_of(const std::string& name) {
  if (name == "exact") return SnapshotFormat::exact;
  if (name == "int8") return SnapshotFormat::int8;
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
      if (has_snapshots) variant.snapshots = format_of(lists.snapshots[f]);
      options.push_back(variant);
    }
  }
}

}  // namespace

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
  std::string label(name_of(options.kind));
  if (options.kind == PolicyKind::vllm_plus) label += fmt::format(" {}", options.block_tokens);
  if (options.kind == PolicyKind::sglang) label += fmt::format(" {}", options.ratio);
  if (options.snapshots == SnapshotFormat::int8) label += " int8";
  return label;
}

}  // namespace hyb::app
