// Ropes as config.json says them: where their keys are, and the kinds that stretch positions.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/io/file.h"
#include "models/families/common.h"

namespace hyb::models {
namespace {

double read_scale(const Config& rope, std::string_view key) {
  const double value = rope.f(Keys{key});
  if (value <= 0) rope.fail(key, fmt::format("must be above 0, is {}", value));
  return value;
}

/// Stretches the context of llama3's first training: pairs that turn less than low_freq_factor
/// times in it are slowed by `factor`, those that turn more than high_freq_factor times stay, and
/// what is between goes from one to the other.
struct Llama3Scaling {
  double factor, low, high, context;

  explicit Llama3Scaling(const Config& rope)
      : factor(read_scale(rope, "factor")),
        low(read_scale(rope, "low_freq_factor")),
        high(read_scale(rope, "high_freq_factor")),
        context(read_scale(rope, "original_max_position_embeddings")) {
    if (high < low) {
      rope.fail("high_freq_factor", fmt::format("must be at least low_freq_factor, is {}", high));
    }
  }

  double operator()(double frequency) const {
    const double turns = context * frequency / (2 * std::numbers::pi);
    const double kept = high == low ? (turns < low ? 0.0 : 1.0)
                                    : std::clamp((turns - low) / (high - low), 0.0, 1.0);
    return frequency * ((1 - kept) / factor + kept);
  }
};

/// YaRN: pairs that turn less than beta_slow times in the context of the first training are slowed
/// by `factor`, those that turn more than beta_fast times stay, and between them, pair by pair,
/// what is kept goes down in equal steps.
class YarnScaling {
 public:
  YarnScaling(const Config& config, const Config& rope, const RopeParameters& read)
      : factor_(rope.has("factor") ? read_scale(rope, "factor") : 0) {
    const double context =
        rope.f("original_max_position_embeddings", config.f("max_position_embeddings", 0.0));
    if (context <= 0) rope.fail("original_max_position_embeddings", "is needed for yarn");
    if (factor_ == 0) factor_ = config.f("max_position_embeddings") / context;
    const auto pair_of = [&](double turns) {
      return read.rotary_dim() * std::log(context / (turns * 2 * std::numbers::pi)) /
             (2 * std::log(read.theta));
    };
    low_ = pair_of(rope.f("beta_fast", 32.0));
    high_ = pair_of(rope.f("beta_slow", 1.0));
    if (rope.b("truncate", true)) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, read.rotary_dim() - 1.0);
    if (high_ == low_) high_ += 0.001;
  }

  double operator()(std::int32_t pair, double frequency) const {
    const double slowed = std::clamp((pair - low_) / (high_ - low_), 0.0, 1.0);
    return frequency * (slowed / factor_ + 1 - slowed);
  }

  double factor() const { return factor_; }

  /// attention_factor, or what follows from `factor` and the two mscales.
  double magnitude(const Config& rope) const {
    if (rope.has("attention_factor")) return read_scale(rope, "attention_factor");
    const auto of = [&](double scale) {
      return factor_ <= 1 ? 1.0 : 0.1 * scale * std::log(factor_) + 1.0;
    };
    const double all = rope.f("mscale_all_dim", 0.0), own = rope.f("mscale", 0.0);
    return all != 0 && own != 0 ? of(own) / of(all) : of(1.0);
  }

 private:
  double factor_, low_ = 0, high_ = 0;
};

/// Frequencies that are not the powers of theta. `rope` is the object with the rope's own keys.
void read_scaling(const Config& config, const Config& rope, RopeParameters& read) {
  const std::string kind = rope.s({"rope_type", "type"}, "default");
  if (kind == "default") return;
  if (kind == "linear") {
    const double factor = read_scale(rope, "factor");
    for (double& frequency : read.frequencies) frequency /= factor;
  } else if (kind == "llama3") {
    std::ranges::transform(read.frequencies, read.frequencies.begin(), Llama3Scaling(rope));
  } else if (kind == "yarn") {
    const YarnScaling scaling(config, rope, read);
    for (std::int32_t i = 0; i < std::ssize(read.frequencies); ++i) {
      double& frequency = read.frequencies[static_cast<std::size_t>(i)];
      frequency = scaling(i, frequency);
    }
    read.magnitude = scaling.magnitude(rope);
    read.scaling = fmt::format("yarn x {}", scaling.factor());
    return;
  } else if (kind == "divisors") {  // of a GGUF file
    const std::vector<double> by = rope.numbers("divisors");
    if (by.size() != read.frequencies.size()) rope.fail("divisors", "there must be one per pair");
    std::ranges::transform(read.frequencies, by, read.frequencies.begin(), std::divides());
    read.scaling = "slowed pair by pair";
    return;
  } else {
    rope.fail("rope_type", quote_name(kind) + " is not supported, only default, linear, llama3, " +
                               "proportional and yarn");
  }
  read.scaling = fmt::format("{} x {}", kind, rope.f("factor"));
}

/// The object with the keys of a rope: of `layers` where there is one for every kind of layer;
/// nullopt where all of them are at top level.
std::optional<Config> rope_object(const Config& config, std::string_view layers) {
  if (config.has("rope_scaling") && config.has("rope_parameters")) {
    config.fail("rope_scaling", "is there as well as rope_parameters; keep one of them");
  }
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    std::optional<Config> rope = config.object(key);
    if (!rope) continue;
    const bool is_by_layers = has_layer_ropes(config);
    if (!is_by_layers && layers.empty()) return rope;
    if (!is_by_layers) config.fail(key, "needs a rope for every kind of layer");
    if (layers.empty()) {
      config.fail(key, "has another rope for every kind of layer, which is not supported");
    }
    std::optional<Config> own = rope->object(Keys{layers});
    if (!own) rope->fail(layers, "is not there");
    if (!rope->b("truncate", true) || !own->b("truncate", true)) {
      own->fail("truncate", "false is not supported where every kind of layer has its own rope");
    }
    return own;
  }
  return std::nullopt;
}

}  // namespace

RopeParameters proportional_rope(std::int32_t head_dim, double theta, double partial,
                                 double factor) {
  const auto turning = static_cast<std::int32_t>(partial * head_dim / 2);
  RopeParameters read = RopeParameters::plain(head_dim, theta);
  for (std::int32_t i = 0; i < head_dim / 2; ++i) {
    double& frequency = read.frequencies[static_cast<std::size_t>(i)];
    frequency = i < turning ? frequency / factor : 0.0;
  }
  read.scaling = fmt::format("proportional {}", partial);
  return read;
}

bool has_layer_ropes(const Config& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const std::optional<Config> rope = config.object(key);
    if (!rope) continue;
    for (const char* layers : {"full_attention", "sliding_attention", "linear_attention"}) {
      if (rope->has(layers)) return true;
    }
  }
  return false;
}

RopeParameters read_rope(const Config& config, std::int32_t head_dim, double partial_fallback,
                         double theta_fallback, std::string_view layers) {
  double theta = config.f("rope_theta", theta_fallback);
  double partial = config.f("partial_rotary_factor", partial_fallback);
  const std::optional<Config> own = rope_object(config, layers);
  if (own) {
    theta = own->f("rope_theta", theta);
    partial = own->f("partial_rotary_factor", partial);
  }
  if (theta <= 0) config.fail("rope_theta", fmt::format("must be above 0, is {}", theta));
  if (partial <= 0 || partial > 1) {
    config.fail("partial_rotary_factor", fmt::format("must be in (0, 1], is {}", partial));
  }
  if (own && own->is_text({"rope_type", "type"}, "proportional")) {
    return proportional_rope(head_dim, theta, partial,
                             own->has("factor") ? read_scale(*own, "factor") : 1.0);
  }
  const auto rotary_dim = static_cast<std::int32_t>(head_dim * partial);
  if (rotary_dim < 2 || rotary_dim % 2 != 0) {
    config.fail("partial_rotary_factor",
                fmt::format("rotates {} of {} dims of a head; it must be an even number",
                            rotary_dim, head_dim));
  }
  RopeParameters rope = RopeParameters::plain(rotary_dim, theta);
  if (own) read_scaling(config, *own, rope);
  return rope;
}

RopeParameters read_gemma_rope(const Config& c, std::int32_t head_dim, bool is_full) {
  const double usual = is_full ? 1e6 : 1e4;
  if (c.has("rope_parameters")) {
    return read_rope(c, head_dim, 1.0, usual, is_full ? "full_attention" : "sliding_attention");
  }
  if (is_full) return read_rope(c, head_dim, 1.0, usual);
  return RopeParameters::plain(head_dim, c.f("rope_local_base_freq", usual));
}

}  // namespace hyb::models
