#include "models/published_fp8.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/text/pattern.h"
#include "models/weight_index.h"

namespace hyb::models {
namespace {

/// A list of modules as config files write it: names, also of what contains a module or of its last
/// parts, names with * for any letters, and regular expressions after "re:".
class ModuleList {
 public:
  void add(const std::string& entry, const std::string& source) {
    if (entry.starts_with("re:")) {
      patterns_.emplace_back("\\A(?:" + entry.substr(3) + ")", source);
    } else if (entry.find('*') != std::string::npos) {
      std::string pattern = "\\A";
      for (const char c : entry) {
        constexpr std::string_view special = R"(\^$.[]|()?+{})";
        if (special.find(c) != std::string_view::npos) pattern += '\\';
        pattern += c == '*' ? std::string(".*") : std::string(1, c);
      }
      patterns_.emplace_back(pattern + "\\z", source);
    } else {
      names_.insert(entry);
    }
  }

  bool contains(const std::string& module) const {
    if (names_.contains(module)) return true;
    for (std::size_t dot = module.find('.'); dot != std::string::npos;
         dot = module.find('.', dot + 1)) {
      if (names_.contains(module.substr(0, dot)) || names_.contains(module.substr(dot + 1))) {
        return true;
      }
    }
    return std::any_of(patterns_.begin(), patterns_.end(), [&](const Pattern& pattern) {
      bool is_found = false;
      pattern.each_match(module, [&](std::size_t, std::size_t) { is_found = true; });
      return is_found;
    });
  }

 private:
  std::unordered_set<std::string> names_;
  std::vector<Pattern> patterns_;
};

/// Which modules a quantization_config makes F8_E4M3.
struct Fp8Modules {
  ModuleList named;
  bool only_named = false;  ///< those of the list; else all others

  explicit Fp8Modules(const Config& quantization) {
    constexpr const char* layers = "quantized_layers";
    only_named = quantization.is_text("quant_algo", "MIXED_PRECISION");
    if (only_named) {
      for (const auto& [layer, how] : quantization.objects(layers)) {
        if (how.s("quant_algo", "NONE") != "NONE") named.add(layer, quantization.source());
      }
      return;
    }
    for (const char* key :
         {"modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"}) {
      if (!quantization.has(key)) continue;
      for (const std::string& module : quantization.strings(key)) {
        named.add(module, quantization.source());
      }
    }
    // What `fp8` leaves plain in any case.
    if (quantization.is_text("quant_method", "fp8")) named.add("lm_head", quantization.source());
  }
};

/// Whether a weight is a linear layer of a size that publishers quantise.
bool is_large_linear(const RequiredWeight& weight) {
  constexpr std::array<std::string_view, 8> plain = {
      "embed",   "moe.router",  "moe.shared_expert_gate", "delta.ba", "delta.a",
      "delta.b", "conv.weight", "moe.correction_bias"};
  const std::string_view role = weight.key.role;
  return weight.shape.size() >= 2 && !role.ends_with("conv_weight") &&
         std::find(plain.begin(), plain.end(), role) == plain.end();
}

std::string module_of(const std::string& tensor) {
  constexpr std::string_view end = ".weight";
  return tensor.ends_with(end) ? tensor.substr(0, tensor.size() - end.size()) : tensor;
}

}  // namespace

std::int64_t fp8_parameters(const Plan& plan, const Family& family, const Config& config) {
  const std::optional<Config> quantization = config.quantization();
  if (!quantization || quantization->is_null("quant_algo")) return 0;
  const Fp8Modules modules(*quantization);
  const auto is_named = [&](const RequiredWeight& weight) {
    return std::any_of(weight.names.begin(), weight.names.end(), [&](const std::string& name) {
      return modules.named.contains(module_of(name));
    });
  };
  std::map<std::pair<std::string_view, std::int32_t>, bool> are_named;  // experts are alike
  std::int64_t count = 0;
  for (const RequiredWeight& weight : required_weights(plan, family)) {
    if (!is_large_linear(weight)) continue;
    const auto [known, is_new] = are_named.try_emplace({weight.key.role, weight.key.layer});
    if (is_new) known->second = is_named(weight);
    if (known->second != modules.only_named) continue;
    count += std::accumulate(weight.shape.begin(), weight.shape.end(), std::int64_t{1},
                             std::multiplies<>());
  }
  return count;
}

}  // namespace hyb::models
