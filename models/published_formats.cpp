#include "models/published_formats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <unordered_set>
#include <vector>

#include "core/text/pattern.h"
#include "kernels/linear/gguf_rows.h"
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

/// Storage of a linear layer.
struct Format {
  std::string name;
  double bits;  ///< per weight, with its part of scales and zero points
};

Format integers(const std::string& method, double bits, double group, double zero_bits) {
  const double scales = group > 0 ? (16 + zero_bits) / group : 0;  // float16; else one per row
  return {fmt::format("{:.0f}-bit {}", bits, method), bits + scales};
}

/// `quant_algo` of modelopt, and which formats of compressed-tensors are the same.
std::optional<Format> format_of_algorithm(std::string_view algorithm) {
  const auto has = [&](std::string_view part) {
    return algorithm.find(part) != std::string_view::npos;
  };
  if (has("NVFP4")) return Format{"NVFP4", 4 + 8.0 / 16};  // E4M3 scales of 16
  if (has("MXFP4")) return Format{"MXFP4", 4 + 8.0 / 32};  // E8M0 scales of 32
  if (has("MXFP8")) return Format{"MXFP8", 8 + 8.0 / 32};
  if (algorithm.starts_with("FP8")) return Format{"FP8", 8};
  if (algorithm.starts_with("W4A")) return integers("AWQ", 4, 128, 0);
  if (algorithm.starts_with("INT8") || algorithm.starts_with("W8A")) return Format{"INT8", 8};
  return std::nullopt;
}

std::optional<Format> compressed_format(const Config& quantization) {
  const std::string format = quantization.s("format", "unknown");
  if (format == "float-quantized") return Format{"FP8", 8};
  if (format == "nvfp4-pack-quantized") return format_of_algorithm("NVFP4");
  if (format == "mxfp4-pack-quantized") return format_of_algorithm("MXFP4");
  if (format != "pack-quantized" && format != "int-quantized") return std::nullopt;
  for (const auto& [name, group] : quantization.objects("config_groups")) {
    const std::optional<Config> weights = group.object("weights");
    if (!weights) continue;
    const double size = weights->has("group_size") ? weights->f("group_size") : 0;
    return integers("compressed-tensors", weights->f("num_bits"), size, 0);
  }
  return std::nullopt;
}

/// Returns the format of all layers that no list excludes.
std::optional<Format> common_format(const Config& quantization) {
  const std::string method = quantization.s("quant_method", "unknown");
  if (method == "fp8") return Format{"FP8", 8};
  if (method == "modelopt") return format_of_algorithm(quantization.s("quant_algo", "unknown"));
  if (method == "mxfp4") return format_of_algorithm("MXFP4");
  if (method == "compressed-tensors") return compressed_format(quantization);
  if (method == "gptq" || method == "awq" || method == "auto-round") {
    const double bits = quantization.f({"bits", "w_bit"}, 4);
    const bool has_zeros = quantization.b("zero_point", true);
    const char* const name = method == "awq" ? "AWQ" : method == "gptq" ? "GPTQ" : "AutoRound";
    return integers(name, bits, quantization.f({"group_size", "q_group_size"}, 128),
                    has_zeros ? bits : 0);
  }
  if (method == "bitsandbytes") {
    if (quantization.b("load_in_8bit", false)) return Format{"8-bit bitsandbytes", 8};
    if (!quantization.b("load_in_4bit", false)) return std::nullopt;
    // A float32 scale of 64 weights; quantised themselves: 8 bits, and a float32 for 256 of them.
    const bool is_double = quantization.b("bnb_4bit_use_double_quant", false);
    return Format{"4-bit bitsandbytes", 4 + (is_double ? 8 + 32.0 / 256 : 32) / 64};
  }
  return std::nullopt;
}

/// Modules that a quantization_config makes smaller, and their formats.
class PublishedFormats {
 public:
  explicit PublishedFormats(const Config& quantization) {
    if (quantization.is_null("quant_algo")) return;  // keys and values alone are quantised
    if (quantization.is_text("quant_algo", "MIXED_PRECISION")) {
      for (const auto& [layer, how] : quantization.objects("quantized_layers")) {
        const std::string algorithm = how.s("quant_algo", "NONE");
        if (algorithm == "NONE") continue;
        const std::optional<Format> format = format_of_algorithm(algorithm);
        if (!format) {
          is_known_ = false;
          continue;
        }
        const auto same = std::find_if(named_.begin(), named_.end(), [&](const auto& known) {
          return known.first.name == format->name;
        });
        ModuleList& modules =
            same == named_.end() ? named_.emplace_back(*format, ModuleList()).second : same->second;
        modules.add(layer, quantization.source());
      }
      return;
    }
    others_ = common_format(quantization);
    is_known_ = others_.has_value();
    for (const char* key : {"modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules",
                            "llm_int8_skip_modules"}) {
      if (!quantization.has(key)) continue;
      for (const std::string& module : quantization.strings(key)) {
        plain_.add(module, quantization.source());
      }
    }
    const std::string method = quantization.s("quant_method", "unknown");
    experts_alone_ = method == "mxfp4";
    // modelopt and compressed-tensors name the head where it stays plain.
    if (method != "modelopt" && method != "compressed-tensors") {
      plain_.add("lm_head", quantization.source());
    }
  }

  /// False where some format is not known.
  bool is_known() const { return is_known_; }

  /// nullptr: as the others of the model.
  const Format* of(const RequiredWeight& weight) const {
    const auto has = [&](const ModuleList& modules) {
      return std::any_of(weight.names.begin(), weight.names.end(), [&](const std::string& name) {
        return modules.contains(module_of(name));
      });
    };
    for (const auto& [format, modules] : named_) {
      if (has(modules)) return &format;
    }
    const bool is_out = experts_alone_ && !weight.key.role.is_of_experts();
    return others_ && !is_out && !has(plain_) ? &*others_ : nullptr;
  }

 private:
  static std::string module_of(const std::string& tensor) {
    constexpr std::string_view end = ".weight";
    return tensor.ends_with(end) ? tensor.substr(0, tensor.size() - end.size()) : tensor;
  }

  bool is_known_ = true;
  bool experts_alone_ = false;
  std::optional<Format> others_;
  ModuleList plain_;
  std::vector<std::pair<Format, ModuleList>> named_;
};

std::int64_t parameters_of(const RequiredWeight& weight) {
  return std::accumulate(weight.shape.begin(), weight.shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

/// Calls use(weight, format or nullptr) for the weights, in runs of one layer and role: experts are
/// alike.
void each_format(const Plan& plan, const Family& family, const PublishedFormats& formats,
                 const std::function<void(const RequiredWeight&, const Format*)>& use) {
  std::map<std::pair<Role, std::int32_t>, const Format*> known;
  for (const RequiredWeight& weight : required_weights(plan, family)) {
    const Format* format = nullptr;
    if (weight.key.role.is_matrix() && weight.key.role.kind() != RoleKind::plain) {
      const auto [entry, is_new] = known.try_emplace({weight.key.role, weight.key.layer});
      if (is_new) entry->second = formats.of(weight);
      format = entry->second;
    }
    use(weight, format);
  }
}

std::int64_t parameters_in(std::string_view name, const Plan& plan, const Family& family,
                           const Config& config) {
  const std::optional<Config> quantization = config.quantization();
  if (!quantization) return 0;
  std::int64_t count = 0;
  each_format(plan, family, PublishedFormats(*quantization),
              [&](const RequiredWeight& weight, const Format* format) {
                if (format && format->name == name) count += parameters_of(weight);
              });
  return count;
}

}  // namespace

std::int64_t fp8_parameters(const Plan& plan, const Family& family, const Config& config) {
  return parameters_in("FP8", plan, family, config);
}

std::int64_t mxfp4_parameters(const Plan& plan, const Family& family, const Config& config) {
  return parameters_in("MXFP4", plan, family, config);
}

PublishedTypes published_types(const Plan& plan, const Family& family, const Config& config) {
  const std::optional<Config> quantization = config.quantization();
  if (!quantization) return {};
  PublishedTypes types;
  each_format(plan, family, PublishedFormats(*quantization),
              [&](const RequiredWeight& weight, const Format* format) {
                types[{weight.key.role, weight.key.layer}] =
                    format && format->name == "FP8"     ? DType::f8_e4m3
                    : format && format->name == "MXFP4" ? DType::u8
                                                        : plan.weight_dtype;
              });
  return types;
}

PackedBlocks published_groups(const Plan& plan, const Family& family, const Config& config,
                              kernels::Device device) {
  const std::optional<Config> quantization = config.quantization();
  PackedBlocks all;
  if (!quantization) return all;
  const Role head = plan.tied_head ? Role("embed") : "head";
  each_format(
      plan, family, PublishedFormats(*quantization),
      [&](const RequiredWeight& weight, const Format* format) {
        if (!format || format->name == "FP8" || format->name == "MXFP4") return;
        const bool is_of_experts = weight.key.role.kind() == RoleKind::expert;
        if (plan.reorders_columns) {
          const std::int64_t rows = weight.shape[0], columns = weight.shape.back();
          if (device == kernels::Device::cuda && !kernels::card_keeps_order(is_of_experts, rows)) {
            return;
          }
          all.ordered_columns = std::max(all.ordered_columns, columns);
          all.bytes += static_cast<double>(columns) * sizeof(std::int32_t);
        }
        all.types = groups_name;
        all.parameters += parameters_of(weight);
        all.bytes += static_cast<double>(parameters_of(weight)) * format->bits / 8;
        if (weight.key.role == head) all.head_bytes = format->bits / 8;
      });
  return all;
}

std::optional<PublishedSize> published_size(const Plan& plan, const Family& family,
                                            const Config& config) {
  const std::optional<Config> quantization = config.quantization();
  if (!quantization) return std::nullopt;
  const PublishedFormats formats(*quantization);
  if (!formats.is_known()) return std::nullopt;
  const double plain_bits = 8.0 * static_cast<double>(size_of(plan.weight_dtype));
  std::set<std::string> names;
  double bits = 0;
  each_format(plan, family, formats, [&](const RequiredWeight& weight, const Format* format) {
    if (format) names.insert(format->name);
    bits += static_cast<double>(parameters_of(weight)) * (format ? format->bits : plain_bits);
  });
  if (names.empty()) return std::nullopt;
  return PublishedSize{fmt::format("{}", fmt::join(names, " and ")),
                       static_cast<std::int64_t>(bits / 8)};
}

}  // namespace hyb::models
