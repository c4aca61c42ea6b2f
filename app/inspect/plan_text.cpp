#include "app/inspect/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace hyb::app {
namespace {

using models::Attention;
using models::DeltaNet;
using models::Mlp;
using models::Moe;
using models::ShortConv;
using models::Ssd;

PartGroup group_of(const Attention& part) {
  std::string text =
      fmt::format("{} heads x {}, {} kv heads, ", part.heads, part.head_dim, part.kv_heads);
  text += part.rope
              ? fmt::format("rope over {} dims, theta {}", part.rope->rotary_dim, part.rope->theta)
              : "no positions";
  if (part.qk_norm) text += ", q/k norm";
  if (part.output_gate) text += ", output gate";
  return {.kind = "attention", .text = std::move(text), .layers = {}};
}

PartGroup group_of(const Ssd& part) {
  return {.kind = "ssd",
          .text = fmt::format("Mamba-2, {} heads x {} x {}, {} group{}, convolution of {}",
                              part.heads, part.head_dim, part.state_dim, part.groups,
                              part.groups == 1 ? "" : "s", part.conv_width),
          .layers = {}};
}

PartGroup group_of(const DeltaNet& part) {
  return {.kind = "delta",
          .text = fmt::format("gated delta net, {} value heads, {} key heads, {} x {}, "
                              "convolution of {}",
                              part.value_heads, part.key_heads, part.key_dim, part.value_dim,
                              part.conv_width),
          .layers = {}};
}

PartGroup group_of(const ShortConv& part) {
  return {.kind = "conv",
          .text = fmt::format("gated short convolution of {}, {} channels", part.conv_width,
                              part.channels),
          .layers = {}};
}

const char* activation_text(models::Activation activation, bool gated) {
  if (activation == models::Activation::relu2) return gated ? "gated relu2" : "relu2";
  return gated ? "gated silu" : "silu";
}

PartGroup group_of(const Mlp& part) {
  return {
      .kind = "mlp",
      .text = fmt::format("{} wide, {}", part.hidden, activation_text(part.activation, part.gated)),
      .layers = {}};
}

PartGroup group_of(const Moe& part) {
  std::string text = fmt::format("{} experts, {} active, {} wide, {}", part.experts, part.active,
                                 part.hidden, activation_text(part.activation, part.gated));
  if (part.groups > 1) {
    text += fmt::format(", of {} of {} groups", part.active_groups, part.groups);
  }
  if (part.latent > 0) text += fmt::format(", latent {}", part.latent);
  if (part.shared_hidden > 0) text += fmt::format(", shared expert {} wide", part.shared_hidden);
  return {.kind = "moe", .text = std::move(text), .layers = {}};
}

}  // namespace

std::vector<PartGroup> part_groups(const models::Plan& plan) {
  std::vector<PartGroup> groups;
  for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
    for (const models::Block& block : plan.layers[layer].blocks) {
      for (const models::Part& part : block.parts) {
        PartGroup group = std::visit([](const auto& known) { return group_of(known); }, part);
        auto same = std::find_if(groups.begin(), groups.end(), [&](const PartGroup& other) {
          return other.kind == group.kind && other.text == group.text;
        });
        if (same == groups.end()) same = groups.insert(same, std::move(group));
        same->layers.push_back(static_cast<std::int32_t>(layer));
      }
    }
  }
  return groups;
}

std::string runs_text(const std::vector<std::int32_t>& numbers) {
  std::string text;
  for (std::size_t begin = 0; begin < numbers.size();) {
    std::size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += std::to_string(numbers[begin]);
    if (end - begin > 1) text += fmt::format("-{}", numbers[end - 1]);
    begin = end;
  }
  return text;
}

Json layer_counts(const models::Plan& plan) {
  Json counts = {{"total", plan.layers.size()}};
  for (const PartGroup& group : part_groups(plan)) {
    counts[group.kind] = counts.value(group.kind, std::size_t{0}) + group.layers.size();
  }
  return counts;
}

}  // namespace hyb::app
