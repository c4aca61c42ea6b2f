#include "app/bench/bench_setting.h"

#include <array>
#include <ctime>

#include <fmt/format.h>

#include "app/base/texts.h"
#include "app/machine/device.h"
#include "app/machine/environment.h"
#include "core/base/strings.h"
#include "kernels/card.h"
#include "kernels/cuda/stream.h"
#include "models/weight_index.h"

namespace hyb::app {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

namespace {

/// "5f2c1e9" of "hyb 0.1.0 (5f2c1e9, CPU)".
std::string build_commit(const std::string& version) {
  const std::size_t begin = version.find('(') + 1;
  return version.substr(begin, version.find_first_of(",)", begin) - begin);
}

}  // namespace

BenchSetting setting_of(const ModelSource& source, const models::Model& model,
                        kernels::Queue& queue, std::int32_t chunk_tokens,
                        const std::string& version) {
  const bool is_cpu = queue.device() == kernels::Device::cpu;
  const models::Plan& plan = model.plan;
  BenchSetting setting = {
      .build_commit = build_commit(version),
      .cpu = cpu_name(),
      .device = name_of(queue.device()),
      .isa = is_cpu ? name_of(queue.isa()) : "",
      .model_filename = source.folder() ? source.folder()->string() : source.name(),
      .model_type = fmt::format("{} {}", plan.family, weights_name(model.geometry.load)),
      .model_bytes = model.weights.packed_bytes,
      .parameters =
          models::parameters(models::required_weights(plan, models::family_of(source.config()))),
      .threads = queue.threads(),
      .chunk_tokens = chunk_tokens,
      .kv_dtype = kv_dtype_name(model.geometry.kv_dtype),
      .has_own_kv_dtype = model.geometry.kv_dtype != model.geometry.load.activation};
  if (!is_cpu) {
    const kernels::Card card = kernels::card(queue.card());
    setting.gpu = card.name;
    setting.isa = fmt::format("sm_{}{}", card.major, card.minor);
    setting.cublaslt = queue.stream().products_text();
  }
  return setting;
}

std::string model_text(const BenchSetting& setting) {
  std::string text =
      fmt::format("{}, {}, {}, {} parameters", setting.model_filename, setting.model_type,
                  bytes_text(setting.model_bytes), parameters_text(setting.parameters));
  if (setting.has_own_kv_dtype) text += ", keys and values " + setting.kv_dtype;
  return text;
}

std::string machine_text(const BenchSetting& setting) {
  if (!setting.gpu.empty()) {
    return fmt::format("{}, {} {}", setting.gpu, setting.device, setting.isa);
  }
  std::string text = fmt::format("{}, {} {}, {}", setting.cpu, setting.device, setting.isa,
                                 counted(setting.threads, "thread"));
  if (setting.prefill_threads > 0) {
    text += fmt::format(": {} for answers, {} for prompts",
                        setting.threads - setting.prefill_threads, setting.prefill_threads);
  }
  return text;
}

}  // namespace hyb::app
