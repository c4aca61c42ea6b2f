#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "core/io/quote_name.h"
#include "models/families/rules.h"

namespace hyb::models {
namespace {

constexpr const char* advice = "use the folder with bf16 or FP8 weights";

[[noreturn]] void refuse(const Config& quantization, std::string_view key,
                         const std::string& format) {
  quantization.fail(key, fmt::format("weights quantised by {} are not supported; {}",
                                     quote_name(format), advice));
}

void check_blocks(const Config& quantization) {
  constexpr const char* key = "weight_block_size";
  if (!quantization.has(key)) return;
  const std::vector<double> sizes = quantization.numbers(key);
  if (sizes == std::vector<double>{128, 128}) return;
  if (sizes.size() != 2) quantization.fail(key, fmt::format("has {} sizes, not 2", sizes.size()));
  refuse(quantization, key, fmt::format("fp8 in blocks of {}", fmt::join(sizes, " x ")));
}

/// Scales of tensors, or of rows.
bool is_read(const std::string& algorithm) {
  return algorithm == "FP8" || algorithm == "FP8_PER_CHANNEL_PER_TOKEN";
}

void check_layers(const Config& quantization) {
  constexpr const char* key = "quantized_layers";
  for (const auto& [layer, how] : quantization.objects(key)) {
    const std::string algorithm = how.s("quant_algo", "NONE");
    if (algorithm == "NONE" || is_read(algorithm)) continue;
    quantization.fail(key, fmt::format("{} is quantised by {}, which is not supported; {}",
                                       quote_name(layer), quote_name(algorithm), advice));
  }
}

void check_modelopt(const Config& quantization) {
  constexpr const char* key = "quant_algo";
  if (quantization.is_null(key)) return;  // keys and values alone are quantised
  const std::string algorithm = quantization.s(key, "unknown");
  if (algorithm == "MIXED_PRECISION") return check_layers(quantization);
  if (!is_read(algorithm)) refuse(quantization, key, "modelopt " + algorithm);
}

void check_compressed_tensors(const Config& quantization) {
  const std::string format = quantization.s("format", "unknown");
  if (format != "float-quantized") refuse(quantization, "format", "compressed-tensors " + format);
}

}  // namespace

void refuse_quantized(const Config& config) {
  const std::optional<Config> quantization = config.quantization();
  if (!quantization) return;
  const std::string method = quantization->s("quant_method", "unknown");
  if (method == "fp8") return check_blocks(*quantization);
  if (method == "modelopt") return check_modelopt(*quantization);
  if (method == "compressed-tensors") return check_compressed_tensors(*quantization);
  refuse(*quantization, "quant_method", method);
}

}  // namespace hyb::models
