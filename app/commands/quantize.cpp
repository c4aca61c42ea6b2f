#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "app/commands/commands.h"
#include "app/eval/opened_model.h"
#include "app/machine/environment.h"
#include "app/machine/version.h"
#include "app/model/digest.h"
#include "app/model/embedded.h"
#include "app/options/options.h"
#include "app/quantize/input_moments.h"
#include "app/quantize/quantized_folder.h"
#include "app/ui/process.h"
#include "app/ui/progress.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "models/families.h"

namespace hyb::app {
namespace {

using kernels::ScaledLevels;

constexpr Words<models::WrittenFormat, 4> formats = {{{"int4-g128", {ScaledLevels::int4, 128}},
                                                      {"int4-g32", {ScaledLevels::int4, 32}},
                                                      {"nvfp4", {ScaledLevels::e2m1, 16}},
                                                      {"int8", {ScaledLevels::int8, 0}}}};
constexpr std::int32_t window_tokens = 512, window_tokens_min = 16;

struct QuantizeFlags {
  ModelOptions model;
  std::string folder;
  models::WrittenFormat format = formats[0].value;
  std::string calibrate;
  std::int32_t windows_max = 64;
};

/// The text that --calibrate names; nullopt: off.
std::optional<std::string> calibration_text(const std::string& name) {
  if (name == "off") return std::nullopt;
  if (!name.empty()) return read_evaluated(name);
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name == "calibration.txt") return std::string(file.bytes());
  }
  return std::nullopt;
}

/// Runs the text through the model, whose memory is free again afterwards.
void calibrate(const QuantizeFlags& options, const std::string& text,
               const Environment& environment, InputMoments& moments) {
  ModelOptions wanted = options.model;
  wanted.types.lossless = false;
  const RunSettings settings = resolve(wanted, environment);
  const models::Plan plan = models::plan_of(settings.source.config(), false);
  const std::int32_t positions = plan.positions_max > 0 ? plan.positions_max : window_tokens;
  OpenedModel model(settings, std::min(window_tokens, positions), Precision::exact,
                    moments.packed_call());
  const auto tokens = std::ssize(model.tokenizer().encode(text, {.add_special_tokens = true}));
  if (tokens < window_tokens_min) {
    throw Error(ErrorKind::usage, fmt::format("--calibrate: the text has {}, fewer than {}",
                                              counted(tokens, "token"), window_tokens_min));
  }
  const auto length = std::min<std::int64_t>(model.window(), tokens);
  const TextWindows windows =
      windows_of(model.tokenizer(), text, static_cast<std::int32_t>(length), options.windows_max);
  ProgressLine progress(environment);
  model.queue().set_observer(&moments);
  evaluate(windows, model.reader(), nullptr, {.progress = [&](std::int32_t done) {
             progress.show(ProgressCount{.done = done, .total = windows.count()}, "calibrating");
           }});
  model.queue().set_observer(nullptr);
}

int quantize_main(const QuantizeFlags& options) {
  const StopAtOnce nothing_to_lose;  // files are whole or not there
  const Environment environment = read_environment();
  const std::optional<std::string> text = calibration_text(options.calibrate);
  const ModelSource source = ModelSource::find(options.model.model, environment);
  const std::string_view format = word_of(formats, options.format);
  QuantizedFolder folder(source, {format, options.format});
  if (text && !source.read(source.tokenizer_file())) {
    throw Error(ErrorKind::model, source.name() +
                                      ": has no tokenizer, so no text can be run "
                                      "through it; --calibrate off does without");
  }
  const Json job = {{"hyb", version_text()},
                    {"model", hex(model_identity(source, true))},
                    {"name", source.name()},
                    {"format", format},
                    {"calibrate", text ? hex(hash_of(*text)) : "off"},
                    {"windows", options.windows_max}};
  folder.claim(options.folder, to_text(job));
  InputMoments moments;
  if (text && !folder.has_all_weights()) calibrate(options, *text, environment, moments);
  kernels::Queue queue(kernels::Device::cpu, {.threads = options.model.threads});
  ProgressLine progress(environment);
  std::size_t done = 0;
  folder.write(
      queue,
      [&](const models::WeightKey& key, std::int64_t columns) {
        return moments.importance(key, columns);
      },
      [&](std::size_t bytes) {
        done += bytes;
        progress.show(ProgressCount{.done = static_cast<std::int64_t>(done >> 20),
                                    .total = static_cast<std::int64_t>(folder.bytes() >> 20)},
                      "MiB");
      });
  progress.clear();
  log::info(folder.summary());
  return 0;
}

Action describe_quantize(CLI::App& cli) {
  const auto options = std::make_shared<QuantizeFlags>();  // CLI11 keeps pointers into it
  options->model.device = kernels::Device::cpu;
  add_model_option(cli, options->model.model, model_help);
  cli.add_option("-o,--output", options->folder, "the folder to write; it is empty, or not there")
      ->type_name("FOLDER")
      ->required();
  add_choice(cli, "--format", options->format, formats,
             "whole numbers of 4 bits in groups of 128 or 32 columns, NVFP4, or 8 bits");
  cli.add_option("--calibrate", options->calibrate,
                 "scales are those that are best for the inputs that this text gives each matrix; "
                 "off: for inputs that are all alike (default: a text inside hyb)")
      ->type_name("FILE");
  cli.add_option("--windows,--chunks", options->windows_max,
                 "read only the first windows of 512 tokens of that text; 0: all")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  cli.add_option("-t,--threads", options->model.threads,
                 "threads that compute; 0: all that this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  return [options] { return quantize_main(*options); };
}

}  // namespace

const Command quantize_command = {
    "quantize", "Write a folder with a model's weights in 4 or 8 bits", describe_quantize};

}  // namespace hyb::app
