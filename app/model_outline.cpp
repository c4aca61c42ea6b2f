#include "app/model_outline.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "app/device.h"
#include "app/lanes.h"
#include "app/session.h"
#include "app/ui/table.h"
#include "app/ui/terminal.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/io/file.h"
#include "models/families/common.h"
#include "models/published_formats.h"
#include "models/weight_index.h"

namespace hyb::app {
namespace {

std::optional<DType> wanted_dtype(const std::string& name) {
  if (name == "bf16") return DType::bf16;
  if (name == "f32") return DType::f32;
  if (name == "fp8") return DType::f8_e4m3;
  return std::nullopt;
}

/// Of --quantize: what weights are published in, where it is no way to pack them.
bool is_published_format(const ModelOptions& options) {
  return options.quantize == "fp8" || options.quantize == "mxfp4";
}

kernels::Quantize quantize_of(const ModelOptions& options) {
  if (options.quantize == "none") return kernels::Quantize::none;
  if (options.dtype == "f32") {
    throw Error(ErrorKind::usage,
                "--quantize: quantised weights are for bf16 activations; leave out --dtype f32");
  }
  if (is_published_format(options)) return kernels::Quantize::none;
  return options.quantize == "q4" ? kernels::Quantize::q4 : kernels::Quantize::q8;
}

/// Whether the weights leave little for sequences.
bool leave_little_memory(const ModelOptions& options, const models::Plan& plan,
                         const models::LoadOptions& load) {
  constexpr double share_of_weights = 0.75;
  const kernels::Device device = device_of(options.device);
  const std::size_t budget = budget_bytes(parse_memory(options.memory), options);
  return static_cast<double>(weight_bytes(plan, device, load)) >
         share_of_weights * static_cast<double>(budget);
}

/// Whether weights of these types may be in 12 bits. Throws Error(usage) where --lossless on means
/// nothing.
bool may_be_lossless(const ModelOptions& options, DType activation, kernels::Quantize quantize) {
  const auto refuse = [&](const char* text) {
    if (options.lossless != "on") return false;
    throw Error(ErrorKind::usage, std::string("--lossless on: ") + text);
  };
  if (options.lossless == "off") return false;
  if (quantize != kernels::Quantize::none) return refuse("leave out --quantize, or this");
  if (activation != DType::bf16) {
    return refuse("is for bf16 weights, these are kept as f16 or f32; --dtype bf16 rounds them");
  }
  return true;
}

/// Of weights that may be in 12 bits, whether --lossless auto wants that. No card has measured yet
/// what it is worth there.
bool wants_lossless(const ModelOptions& options, const models::Plan& plan,
                    const models::LoadOptions& plain, const WeightUse& use) {
  const kernels::Device device = device_of(options.device);
  const bool is_measured =
      device == kernels::Device::cpu && kernels::best_isa() != kernels::Isa::plain;
  if (is_measured && use.prefers_12_bits()) return true;
  return leave_little_memory(options, plan, plain);
}

/// Counted only where config.json indicates some: by the files, else, and of random weights, by
/// what it says itself.
std::int64_t fp8_parameters(const ModelSource& source, const models::Config& config,
                            const models::Plan& plan, const ModelOptions& options) {
  if (!config.quantization()) return 0;
  const models::Family& family = models::family_of(config);
  if (options.random_weights || !source.has_tensors()) {
    return models::fp8_parameters(plan, family, config);
  }
  return models::fp8_parameters(plan, family, source.tensors());
}

/// The same of MXFP4.
std::int64_t mxfp4_parameters(const ModelSource& source, const models::Config& config,
                              const models::Plan& plan, const ModelOptions& options) {
  if (!config.quantization()) return 0;
  const models::Family& family = models::family_of(config);
  if (options.random_weights || !source.has_tensors()) {
    return models::mxfp4_parameters(plan, family, config);
  }
  return models::mxfp4_parameters(plan, family, source.tensors());
}

/// Of what stays F16 in memory: by the files, else by what config.json says.
double f16_share(const ModelSource& source, const models::Config& config, const models::Plan& plan,
                 const ModelOptions& options, DType activation) {
  if (activation != DType::f32) return 0;
  if (options.random_weights || !source.has_tensors()) {
    return plan.weight_dtype == DType::f16 ? 1 : 0;
  }
  return models::f16_share(plan, models::family_of(config), source.tensors());
}

/// Of all weights as published, by config.json alone.
std::size_t stored_bytes(const models::Plan& plan, const models::Family& family,
                         const models::Config& config) {
  const auto quantized = models::published_size(plan, family, config);
  if (quantized) return static_cast<std::size_t>(quantized->bytes);
  return static_cast<std::size_t>(models::parameters(models::required_weights(plan, family))) *
         size_of(plan.weight_dtype);
}

/// Whether the files have the draft layer of the plan; random weights have.
bool has_draft_layer(const ModelSource& source, const ModelOptions& options,
                     const models::Family& family) {
  if (options.random_weights || !source.has_tensors()) return true;
  return models::has_draft_layer(family, source.tensors());
}

/// With its draft layer where --spec wants it. Throws Error(usage) where mtp is requested and the
/// model has nothing for that.
models::Plan read_plan(const ModelSource& source, const ModelOptions& options,
                       const models::Config& config, const models::Family& family,
                       const std::optional<ModelSource>& head) {
  const SpeculationFlags& flags = options.speculation;
  if (head) {
    const models::Config of_head = head->config();
    return models::plan_with_head(config, &of_head, false);
  }
  const bool is_requested = flags.kind() == "mtp";
  const bool is_auto = flags.kind() == "auto" && flags.is_heeded && may_draft(options);
  models::Plan plan = models::plan_of(config, is_requested || is_auto);
  if (plan.draft && is_auto && !has_draft_layer(source, options, family)) plan.draft.reset();
  if (!is_requested) return plan;
  if (!plan.draft) {
    throw Error(ErrorKind::usage, "--spec mtp: " + source.name() +
                                      " has no draft layer (MTP) by its config.json, or none that "
                                      "hyb runs; leave --spec out");
  }
  if (!has_draft_layer(source, options, family)) {
    throw Error(ErrorKind::usage, "--spec mtp: the weights of " + source.name() +
                                      " are without its draft layer (tensors mtp.*); leave --spec "
                                      "out");
  }
  return plan;
}

}  // namespace

std::optional<ModelSource> head_of(const ModelSource& source, const SpeculationFlags& flags) {
  if (!flags.has_draft_model()) return std::nullopt;
  ModelSource named = source.other(flags.draft_model);
  const std::optional<models::HeadKind> head = models::head_kind(named.config());
  const std::string_view kind = !head                              ? "draft"
                                : head == models::HeadKind::eagle3 ? "eagle3"
                                                                   : "dflash";
  if (flags.source != "auto" && flags.source != kind) {
    throw Error(ErrorKind::usage,
                fmt::format("--spec {}: {} is {}; leave --spec out, and what it is decides",
                            flags.source, named.name(),
                            head ? fmt::format("a head of the kind {}", models::name_of(*head))
                                 : "a model, no head"));
  }
  if (!head) return std::nullopt;
  return named;
}

std::string kv_dtype_name(DType dtype) {
  return dtype == DType::f8_e4m3 ? "fp8" : dtype == DType::bf16 ? "bf16" : "f32";
}

std::string kv_text(const models::Geometry& geometry) {
  std::string text = bytes_text(geometry.kv_bytes_per_token) + " per token";
  if (geometry.window_kv_bytes > 0) {
    text += fmt::format(", {} per sequence in windows", bytes_text(geometry.window_kv_bytes));
  }
  return text;
}

std::string weights_name(const models::LoadOptions& load) {
  if (load.quantize != kernels::Quantize::none) return std::string(models::name_of(load.quantize));
  if (load.activation != DType::bf16) return load.f16_share > 0 ? "F16" : "F32";
  if (load.fp8_parameters > 0) return "FP8";
  if (load.mxfp4_parameters > 0) return "MXFP4";
  return load.lossless ? "BF16 in 12 bits" : "BF16";
}

std::string smaller_weights_text(const models::LoadOptions& load, bool fits_in_12_bits) {
  std::string text;
  if (load.activation == DType::f32) {
    text = fmt::format(
        "--dtype bf16 makes {}keys, values and activations smaller (it rounds the "
        "weights, once), ",
        load.f16_share < 1 ? "the weights, " : "");
  }
  if (load.quantize == kernels::Quantize::q4) return text;
  const bool is_plain = load.quantize == kernels::Quantize::none;
  if (fits_in_12_bits) text += "--lossless on makes it fit with the same answers, ";
  return text +
         fmt::format("--quantize {} makes the weights smaller", is_plain ? "q8 or q4" : "q4");
}

std::size_t weight_bytes(const models::Plan& plan, kernels::Device device,
                         const models::LoadOptions& load) {
  return models::packed_bytes(plan, device, load) + models::vector_bytes(plan);
}

std::size_t lossless_saves(const models::Plan& plan, kernels::Device device,
                           const models::LoadOptions& load) {
  if (load.lossless || load.quantize != kernels::Quantize::none || load.activation != DType::bf16) {
    return 0;
  }
  models::LoadOptions lossless = load;
  lossless.lossless = true;
  return weight_bytes(plan, device, load) - weight_bytes(plan, device, lossless);
}

models::GraphOptions parse_graphs(const std::string& mode) {
  if (mode.empty()) return {};
  return {.decode = mode.starts_with("full"), .mixed = mode.ends_with("piecewise")};
}

models::GraphOptions graphs_of(const ModelOptions& options) {
  if (options.graphs.empty()) return {};
  if (device_of(options.device) == kernels::Device::cpu) {
    throw Error(ErrorKind::usage, "--graphs: needs a card (--device cuda)");
  }
  return parse_graphs(options.graphs);
}

ModelOutline outline_of(const ModelSource& source, const ModelOptions& options,
                        const WeightUse& use) {
  const kernels::Quantize quantize = quantize_of(options);
  models::Config config = source.config();
  if (is_published_format(options)) {
    if (!options.random_weights && source.has_tensors()) {
      throw Error(ErrorKind::usage,
                  fmt::format("--quantize {}: is read where it is published, and made up with "
                              "--random-weights; q8 or q4 packs the weights of any files",
                              options.quantize));
    }
    config = config.with_quantization(options.quantize);
  }
  const models::Family& family = models::family_of(config);
  std::optional<ModelSource> head = head_of(source, options.speculation);
  models::Plan plan = read_plan(source, options, config, family, head);
  std::optional<DType> wanted = wanted_dtype(options.dtype);
  if (options.quantize != "none") wanted = DType::bf16;
  const DType activation = models::activation_dtype(plan, wanted);
  models::GeometryOptions sizes = {
      .activation = activation,
      .kv = wanted_dtype(options.kv_dtype),
      .state = wanted_dtype(options.state_dtype),
      .page_tokens = options.page_tokens,
      .quantize = quantize,
      .fp8_parameters = fp8_parameters(source, config, plan, options),
      .mxfp4_parameters = mxfp4_parameters(source, config, plan, options),
      .f16_share = f16_share(source, config, plan, options, activation),
      .lossless = false,
      .draft_head_q4 = plan.draft && !plan.draft->is_apart() && activation == DType::bf16,
      .with_drafts = plan.draft.has_value()};
  if (options.quantize == "mxfp4" && sizes.mxfp4_parameters == 0) {
    throw Error(ErrorKind::usage, "--quantize mxfp4: only experts are published so, and " +
                                      source.name() +
                                      " has none; fp8, q8 and q4 are for all linear weights");
  }
  models::Geometry geometry = models::geometry_of(plan, sizes);
  if (may_be_lossless(options, activation, quantize)) {
    sizes.lossless = options.lossless == "on" || wants_lossless(options, plan, geometry.load, use);
    geometry.load.lossless = sizes.lossless;
  }
  if (plan.draft && options.speculation.kind() == "auto" &&
      leave_little_memory(options, plan, geometry.load)) {
    ModelOptions without = options;
    without.speculation.is_heeded = false;
    return outline_of(source, without, use);
  }
  return {.config = std::move(config),
          .family = &family,
          .plan = std::move(plan),
          .activation = activation,
          .sizes = sizes,
          .geometry = std::move(geometry),
          .head = std::move(head)};
}

std::vector<models::LosslessMatrix> sample_lossless(const ModelSource& source,
                                                    const ModelOptions& options,
                                                    ModelOutline& outline) {
  models::LoadOptions& load = outline.geometry.load;
  if (!load.lossless || options.random_weights || !source.has_tensors()) return {};
  std::vector<models::LosslessMatrix> matrices;
  try {
    TensorFiles files = source.tensors();
    matrices = models::sample_lossless(outline.config, files, load);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::model) throw;
    return {};  // files that can't be loaded: loading and inspecting them says why
  }
  for (const models::LosslessMatrix& matrix : matrices) {
    load.above_12_bits += models::bytes_above_12_bits(matrix);
  }
  return matrices;
}

bool may_draft(const ModelOptions& options) {
  return options.batch_invariant || device_of(options.device) == kernels::Device::cpu;
}

std::string missing_files_text(const ModelSource& source, const ModelOutline& outline) {
  const auto missing = source.missing_files();
  if (!missing) return "";
  const std::string size =
      missing->total_bytes
          ? bytes_text(*missing->total_bytes) + " by the index"
          : "about " + bytes_text(stored_bytes(outline.plan, *outline.family, outline.config)) +
                " by config.json";
  const bool are_all = missing->names.size() == missing->listed;
  return fmt::format(
      "{} of the {} files that the index lists {}; all of them are {}",
      are_all ? "none" : std::to_string(missing->names.size()), missing->listed,
      are_all ? "is there"
              : fmt::format("are missing, the first is {}", quote_name(missing->names.front())),
      size);
}

void refuse_unread_format(const ModelSource& source, bool as_json) {
  const models::Config config = source.config();
  try {
    models::refuse_quantized(config);
  } catch (const Error&) {
    const models::Family& family = models::family_of(config);
    const models::Plan plan = family.plan(config.without_quantization());
    const auto published = models::published_size(plan, family, config);
    const std::int64_t parameters = models::parameters(models::required_weights(plan, family));
    const bool has_files = source.has_tensors();
    if (!published && !has_files) throw;
    const std::size_t bytes =
        has_files ? source.tensors().bytes() : static_cast<std::size_t>(published->bytes);
    const std::size_t plain = static_cast<std::size_t>(parameters) * size_of(DType::bf16);
    const std::string format = published ? published->format : "a format that is not known";
    if (as_json) {
      write_output(pretty_json({{"model", source.name()},
                                {"is_read", false},
                                {"parameters", parameters},
                                {"published_format", format},
                                {"published_bytes", bytes},
                                {"published_bytes_by", has_files ? "files" : "config.json"},
                                {"bf16_bytes", plain}}));
    } else {
      write_output(
          fmt::format("{}\npublished        {}{} by {}, {}: hyb does not read it\n"
                      "in bf16          {}\n",
                      sanitized_line(source.name()), has_files ? "" : "about ", bytes_text(bytes),
                      has_files ? "the files" : "config.json", format, bytes_text(plain)));
    }
    throw;
  }
}

void check_loadable(const ModelSource& source, const ModelOptions& options) {
  if (options.random_weights || source.has_tensors()) return;
  if (source.missing_files()) source.tensors();  // throws, naming them
  throw Error(ErrorKind::model, source.lack_of_tensors());
}

models::Model load_weights_of(const ModelSource& source, const ModelOutline& outline,
                              const ModelOptions& options, kernels::Queue& queue,
                              const models::MakeRoom& make_room) {
  std::optional<models::HeadFolder> head;
  if (outline.head) head.emplace(outline.head->config());
  models::HeadFolder* const with = head ? &*head : nullptr;
  if (options.random_weights) {
    return models::random_model(queue, outline.config, *options.random_weights, outline.sizes,
                                make_room, with);
  }
  TensorFiles files = source.tensors();
  if (head) head->files = outline.head->tensors();
  return models::load_model(queue, outline.config, files, outline.sizes, make_room, with);
}

std::size_t BareModel::runner_bytes(const models::RunnerOptions& options) const {
  return models::ModelRunner::workspace_bytes(queue.device(), model.plan, model.geometry, options,
                                              queue.threads()) +
         options.memory.layout.store_bytes();
}

BareModel open_bare(const ModelOptions& options, const Environment& environment,
                    const WeightUse& use) {
  const std::size_t budget = budget_bytes(parse_memory(options.memory), options);
  ModelSource source = ModelSource::find(options.model, environment);
  ModelOutline outline = outline_of(source, options, use);
  check_loadable(source, options);
  const std::size_t weights =
      weight_bytes(outline.plan, device_of(options.device), outline.geometry.load);
  if (weights > budget) {
    const kernels::Device device = device_of(options.device);
    const std::size_t saved = lossless_saves(outline.plan, device, outline.geometry.load);
    const std::string smaller =
        smaller_weights_text(outline.geometry.load, saved > 0 && weights - saved <= budget);
    const bool is_card = device == kernels::Device::cuda;
    throw Error(ErrorKind::memory,
                fmt::format("{}: the weights take {}, --memory allows {}{}{}{}", source.name(),
                            bytes_text(weights), bytes_text(budget),
                            is_card ? "" : limit_note(memory_limits(), weights),
                            smaller.empty() ? "" : "; ", smaller));
  }
  kernels::Queue queue = make_queue(options);
  models::Model model = load_weights_of(source, outline, options, queue);
  return {.source = std::move(source),
          .outline = std::move(outline),
          .budget = budget,
          .graphs = graphs_of(options),
          .queue = std::move(queue),
          .model = std::move(model)};
}

}  // namespace hyb::app
