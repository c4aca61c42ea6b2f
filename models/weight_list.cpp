#include "models/weight_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace hyb::models {
namespace {

constexpr std::size_t weights_max = 1'000'000;
constexpr std::int64_t parameters_max = std::int64_t{1} << 60;

using Shape = std::vector<std::int64_t>;

/// Puts numbers in the places of `{}`, in order.
std::string fill_numbers(std::string_view pattern, std::int32_t layer, std::int32_t expert) {
  std::string out;
  for (const std::int32_t number : {layer, expert}) {
    const std::size_t place = pattern.find("{}");
    if (place == std::string_view::npos) break;
    out.append(pattern.substr(0, place)).append(std::to_string(number));
    pattern.remove_prefix(place + 2);
  }
  return out.append(pattern);
}

/// Whether a name is a pattern with some numbers in the places of `{}`.
bool matches(std::string_view pattern, std::string_view name) {
  for (std::size_t place = pattern.find("{}"); place != std::string_view::npos;
       place = pattern.find("{}")) {
    if (!name.starts_with(pattern.substr(0, place))) return false;
    name.remove_prefix(place);
    const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    if (digits == 0) return false;
    name.remove_prefix(digits);
    pattern.remove_prefix(place + 2);
  }
  return name == pattern;
}

/// Collects the weights of a plan; the family says which names, and in which layout.
class Lister {
 public:
  Lister(const Plan& plan, const Family& family, const TensorFiles* files)
      : plan_(plan), family_(family), files_(files) {}

  std::vector<RequiredWeight> list() {
    add("embed", {plan_.vocab, plan_.width});
    for (const Layer& layer : plan_.layers) {
      ++layer_;
      for (std::size_t block = 0; block < layer.blocks.size(); ++block) {
        add("block" + std::to_string(block) + ".norm", {plan_.width});
        for (const Part& part : layer.blocks[block].parts) {
          std::visit([this](const auto& p) { add_part(p); }, part);
        }
      }
    }
    layer_ = -1;
    add("final_norm", {plan_.width});
    if (!plan_.tied_head) add("head", {plan_.vocab, plan_.width});
    return std::move(weights_);
  }

 private:
  /// The spellings of a name, numbers and trunks filled in.
  void spell(const TensorName& name, std::int32_t expert, std::vector<std::string>& out) const {
    if (!name.name.starts_with('*')) {
      out.push_back(fill_numbers(name.name, layer_, expert));
      return;
    }
    const std::string rest = fill_numbers(name.name.substr(1), layer_, expert);
    for (const std::string_view trunk : family_.trunks) out.push_back(std::string(trunk) + rest);
  }

  bool is_named(std::string_view role) const {
    return std::any_of(family_.names.begin(), family_.names.end(),
                       [&](const TensorName& name) { return name.role == role; });
  }

  bool is_stored(std::string_view role, std::int32_t expert) const {
    std::vector<std::string> names;
    for (const TensorName& name : family_.names) {
      if (name.role == role) spell(name, expert, names);
    }
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return files_->find(name) != nullptr; });
  }

  /// Whether this layer has `a` and not its alternative `b`: the one that is stored; where the
  /// files don't say, the one that the family names, of both the first.
  bool takes(std::string_view a, std::string_view b, std::int32_t expert_of_b = -1) const {
    if (!is_named(a) || !is_named(b)) return is_named(a);
    if (files_ != nullptr) {
      if (is_stored(a, -1)) return true;
      if (is_stored(b, expert_of_b)) return false;
    }
    const auto first =
        std::find_if(family_.names.begin(), family_.names.end(),
                     [&](const TensorName& name) { return name.role == a || name.role == b; });
    return first->role == a;
  }

  void add(std::string_view role, Shape shape, std::int32_t expert = -1) {
    RequiredWeight weight = {.key = {}, .names = {}, .shape = std::move(shape)};
    for (const TensorName& name : family_.names) {
      if (name.role != role) continue;
      // The key refers to the family's table, which outlives everything.
      weight.key = {.role = name.role, .layer = layer_, .expert = expert};
      spell(name, expert, weight.names);
    }
    require(!weight.names.empty(), "required_weights: the family names role " + std::string(role));
    if (weights_.size() >= weights_max) {
      throw Error(ErrorKind::model,
                  fmt::format("plan: more than {} tensors; look at the numbers of "
                              "layers and experts in config.json",
                              weights_max));
    }
    weights_.push_back(std::move(weight));
  }

  void add_part(const Attention& a) {
    const std::int64_t rows = std::int64_t{a.heads} * a.head_dim;
    const std::int64_t kv_rows = std::int64_t{a.kv_heads} * a.head_dim;
    const std::int64_t q_rows = a.output_gate ? 2 * rows : rows;
    add("attention.q", {q_rows, plan_.width});
    add("attention.k", {kv_rows, plan_.width});
    add("attention.v", {kv_rows, plan_.width});
    add("attention.o", {plan_.width, rows});
    if (a.qk_norm) {
      add("attention.q_norm", {a.head_dim});
      add("attention.k_norm", {a.head_dim});
    }
  }

  void add_part(const Ssd& s) {
    add("ssd.in_proj", {s.projection(), plan_.width});
    add("ssd.conv_weight", {s.conv_dim(), 1, s.conv_width});
    if (s.conv_bias) add("ssd.conv_bias", {s.conv_dim()});
    add("ssd.a_log", {s.heads});
    add("ssd.d", {s.heads});
    add("ssd.dt_bias", {s.heads});
    add("ssd.norm", {s.inner()});
    add("ssd.out_proj", {plan_.width, s.inner()});
  }

  void add_part(const DeltaNet& d) {
    const std::int64_t values = d.values();
    if (takes("delta.qkvz", "delta.qkv")) {
      add("delta.qkvz", {d.conv_dim() + values, plan_.width});
      add("delta.ba", {2 * std::int64_t{d.value_heads}, plan_.width});
    } else {
      add("delta.qkv", {d.conv_dim(), plan_.width});
      add("delta.z", {values, plan_.width});
      add("delta.b", {d.value_heads, plan_.width});
      add("delta.a", {d.value_heads, plan_.width});
    }
    add("delta.conv_weight", {d.conv_dim(), 1, d.conv_width});
    add("delta.a_log", {d.value_heads});
    add("delta.dt_bias", {d.value_heads});
    add("delta.norm", {d.value_dim});
    add("delta.out_proj", {plan_.width, values});
  }

  void add_part(const ShortConv& c) {
    add("conv.in_proj", {3 * std::int64_t{c.channels}, plan_.width});
    add("conv.weight", {c.channels, 1, c.conv_width});
    add("conv.out_proj", {plan_.width, c.channels});
  }

  void add_part(const Mlp& m) { add_feed_forward("mlp.", "", m.hidden, m.gated); }

  /// gate and up, fused or apart, and down. Roles are room + "gate_up" or room + "gate", ...
  void add_feed_forward(const std::string& room, const std::string& prefix, std::int64_t hidden,
                        bool gated) {
    const std::string stem = room + prefix;
    if (gated && takes(stem + "gate_up", stem + "up")) {
      add(stem + "gate_up", {2 * hidden, plan_.width});
    } else {
      if (gated) add(stem + "gate", {hidden, plan_.width});
      add(stem + "up", {hidden, plan_.width});
    }
    add(stem + "down", {plan_.width, hidden});
  }

  void add_part(const Moe& m) {
    add("moe.router", {m.experts, plan_.width});
    if (m.correction_bias) add("moe.correction_bias", {m.experts});
    const std::int64_t width = m.latent > 0 ? m.latent : plan_.width;
    if (m.latent > 0) {
      add("moe.latent_in", {width, plan_.width});
      add("moe.latent_out", {plan_.width, width});
    }
    add_experts(m, width);
    if (m.shared_hidden > 0) add_feed_forward("moe.", "shared_", m.shared_hidden, m.gated);
    if (m.shared_gate) add("moe.shared_expert_gate", {1, plan_.width});
  }

  void add_experts(const Moe& m, std::int64_t width) {
    if (takes("moe.gate_up", "moe.expert_up", 0)) {
      add("moe.gate_up", {m.experts, (m.gated ? 2 : 1) * std::int64_t{m.hidden}, width});
      add("moe.down", {m.experts, width, m.hidden});
      return;
    }
    for (std::int32_t expert = 0; expert < m.experts; ++expert) {
      if (m.gated) add("moe.expert_gate", {m.hidden, width}, expert);
      add("moe.expert_up", {m.hidden, width}, expert);
      add("moe.expert_down", {width, m.hidden}, expert);
    }
  }

  const Plan& plan_;
  const Family& family_;
  const TensorFiles* files_;  // none: of config.json alone
  std::int32_t layer_ = -1;
  std::vector<RequiredWeight> weights_;
};

}  // namespace

std::vector<RequiredWeight> required_weights(const Plan& plan, const Family& family,
                                             const TensorFiles* files) {
  std::vector<RequiredWeight> weights = Lister(plan, family, files).list();
  parameters(weights);
  return weights;
}

std::string_view role_of(const Family& family, std::string_view name) {
  for (const TensorName& known : family.names) {
    if (!known.name.starts_with('*')) {
      if (matches(known.name, name)) return known.role;
      continue;
    }
    for (const std::string_view trunk : family.trunks) {
      if (name.starts_with(trunk) && matches(known.name.substr(1), name.substr(trunk.size()))) {
        return known.role;
      }
    }
  }
  return "";
}

std::int64_t parameters(const std::vector<RequiredWeight>& weights) {
  std::int64_t sum = 0;
  for (const RequiredWeight& weight : weights) {
    std::int64_t count = 1;
    bool too_many = false;
    for (const std::int64_t dimension : weight.shape) {
      too_many |= __builtin_mul_overflow(count, dimension, &count);
    }
    too_many |= __builtin_add_overflow(sum, count, &sum) || sum > parameters_max;
    if (too_many) {
      throw Error(ErrorKind::model,
                  fmt::format("plan: more than 2^60 parameters at {}; look at the sizes in "
                              "config.json",
                              weight.names.front()));
    }
  }
  return sum;
}

}  // namespace hyb::models
