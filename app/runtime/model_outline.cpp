#include "app/runtime/model_outline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "app/base/texts.h"
#include "app/machine/environment.h"
#include "app/ui/progress.h"
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

/// Returns the packing of --quantize. Throws Error(usage) where activations are f32.
kernels::Quantize packing_of(const TypeOptions& types) {
  if (types.quantize == QuantizeChoice::none) return kernels::Quantize::none;
  if (types.activation == DType::f32) {
    throw Error(ErrorKind::usage,
                "--quantize: quantised weights are for bf16 activations; leave out --dtype f32");
  }
  switch (types.quantize) {
    case QuantizeChoice::q8:
      return kernels::Quantize::q8;
    case QuantizeChoice::q4:
      return kernels::Quantize::q4;
    case QuantizeChoice::none:
    case QuantizeChoice::fp8:
    case QuantizeChoice::mxfp4:
      break;
  }
  return kernels::Quantize::none;
}

/// Returns fp8 or mxfp4 where --quantize names it: a published format, not a packing; else "".
std::string published_format(const TypeOptions& types) {
  const bool is_one =
      types.quantize == QuantizeChoice::fp8 || types.quantize == QuantizeChoice::mxfp4;
  return is_one ? std::string(word_of(words::quantize, types.quantize)) : "";
}

/// True if the weights leave little for sequences.
bool leave_little_memory(const RunSettings& settings, const models::Plan& plan,
                         const models::LoadOptions& load) {
  constexpr double share_of_weights = 0.75;
  return static_cast<double>(weight_bytes(plan, settings.device, load)) >
         share_of_weights * static_cast<double>(settings.memory.bytes);
}

/// True if weights of these types may be in 12 bits, or those in bf16 beside codes that stay.
/// Throws Error(usage) where --lossless on means nothing.
bool may_be_lossless(const TypeOptions& types, DType activation, kernels::Quantize quantize) {
  const bool is_asked = types.lossless.value_or(false);
  const auto refuse = [&](const char* text) {
    if (!is_asked) return false;
    throw Error(ErrorKind::usage, std::string("--lossless on: ") + text);
  };
  if (!types.lossless.value_or(true)) return false;
  if (quantize != kernels::Quantize::none) return refuse("leave out --quantize, or this");
  if (activation != DType::bf16) {
    return refuse("is for bf16 weights, these are kept as f16 or f32; --dtype bf16 rounds them");
  }
  return true;
}

/// True if --lossless auto wants 12 bits for weights that may have them. The gain on a card is not
/// measured yet.
bool wants_lossless(const RunSettings& settings, const models::Plan& plan,
                    const models::LoadOptions& plain, const WeightUse& use) {
  const bool is_measured =
      settings.device == kernels::Device::cpu && kernels::best_isa() != kernels::Isa::plain;
  if (is_measured && use.prefers_12_bits()) return true;
  return leave_little_memory(settings, plan, plain);
}

/// True if the weights are files; otherwise they are random or missing.
bool has_files(const RunSettings& settings) {
  return !settings.types.random_weights && settings.source.has_tensors();
}

/// Returns how many parameters are published in a format that config.json indicates: by the files,
/// or, without files and for random weights, by config.json.
template <typename Count>
std::int64_t published_parameters(const TensorFiles* files, const models::Config& config,
                                  const models::Plan& plan, Count&& count) {
  if (!config.quantization() && !(files && files->are_gguf())) return 0;
  const models::Family& family = models::family_of(config);
  return files ? count(plan, family, *files) : count(plan, family, config);
}

/// Returns what stays in blocks of a GGUF file or in groups, by the files or else by config.json.
models::PackedBlocks packed_blocks(const RunSettings& settings, const TensorFiles* files,
                                   const models::Config& config, const models::Plan& plan,
                                   DType activation) {
  if (activation != DType::bf16 || settings.types.random_weights) return {};
  const models::Family& family = models::family_of(config);
  if (files) return models::packed_blocks(plan, family, *files, settings.device);
  return models::published_groups(plan, family, config, settings.device);
}

/// The share that stays F16 in memory: by the files, else by what config.json says.
double f16_share(const TensorFiles* files, const models::Config& config, const models::Plan& plan,
                 DType activation) {
  if (activation != DType::f32) return 0;
  if (!files) return plan.weight_dtype == DType::f16 ? 1 : 0;
  return models::f16_share(plan, models::family_of(config), *files);
}

/// The bytes of all weights as published, by config.json alone.
std::size_t stored_bytes(const models::Plan& plan, const models::Family& family,
                         const models::Config& config) {
  const auto quantized = models::published_size(plan, family, config);
  if (quantized) return static_cast<std::size_t>(quantized->bytes);
  return static_cast<std::size_t>(models::parameters(models::required_weights(plan, family))) *
         size_of(plan.weight_dtype);
}

/// Reads the plan, with the draft layer where --spec wants it; random weights always have one.
/// Throws Error(usage) where mtp is requested and the model has nothing for that.
models::Plan read_plan(const RunSettings& settings, const TensorFiles* files,
                       const models::Config& config, const models::Family& family,
                       const std::optional<ModelSource>& head) {
  if (head) {
    const models::Config of_head = head->config();
    return models::plan_with_head(config, &of_head, false);
  }
  const bool is_requested = settings.drafts.source == DraftSource::mtp;
  const bool is_auto = settings.drafts.may_load_layer;
  models::Plan plan = models::plan_of(config, is_requested || is_auto);
  const bool has_draft_layer = !files || models::has_draft_layer(family, *files);
  if (plan.draft && is_auto && !has_draft_layer) plan.draft.reset();
  if (!is_requested) return plan;
  if (!plan.draft) {
    throw Error(ErrorKind::usage, "--spec mtp: " + settings.source.name() +
                                      " has no draft layer (MTP), or none that "
                                      "hyb runs; leave --spec out");
  }
  if (!has_draft_layer) {
    throw Error(ErrorKind::usage, "--spec mtp: the weights of " + settings.source.name() +
                                      " are without its draft layer (tensors mtp.*); leave --spec "
                                      "out");
  }
  return plan;
}

[[noreturn]] void fail_without_keys(const std::string& model) {
  throw Error(ErrorKind::usage, "--kv-dtype: " + model +
                                    " has no attention, so no keys and values; leave it out "
                                    "(--state-dtype is the type of its states)");
}

}  // namespace

std::optional<ModelSource> head_of(const RunSettings& settings) {
  const Drafts& drafts = settings.drafts;
  if (!drafts.has_model()) return std::nullopt;
  ModelSource named = settings.source.other(drafts.model);
  const std::optional<models::HeadKind> head = models::head_kind(named.config());
  const DraftSource kind = !head                              ? DraftSource::draft
                           : head == models::HeadKind::eagle3 ? DraftSource::eagle3
                                                              : DraftSource::dflash;
  if (drafts.is_named && drafts.source != kind) {
    throw Error(ErrorKind::usage,
                fmt::format("--spec {}: {} is {}; leave --spec out, and what it is decides",
                            word_of(words::spec, drafts.source), named.name(),
                            head ? fmt::format("a head of the kind {}", models::name_of(*head))
                                 : "a model, no head"));
  }
  if (!head) return std::nullopt;
  return named;
}

std::string kv_dtype_name(DType dtype) {
  return std::string(word_of(words::kv_dtype, std::optional(dtype)));
}

std::string kv_text(const models::Geometry& geometry) {
  std::string text = bytes_text(geometry.kv_bytes_per_token) + " per token";
  if (geometry.window_kv_bytes > 0) {
    text += fmt::format(", {} per sequence in windows", bytes_text(geometry.window_kv_bytes));
  }
  return text;
}

std::string weights_name(const models::LoadOptions& load) {
  if (load.blocks.parameters > 0) return load.blocks.types;
  if (load.quantize != kernels::Quantize::none) return std::string(models::name_of(load.quantize));
  if (load.activation != DType::bf16) return load.f16_share > 0 ? "F16" : "F32";
  if (load.fp8_parameters > 0) return "FP8";
  if (load.mxfp4_parameters > 0) return "MXFP4";
  return load.lossless ? "BF16 in 12 bits" : "BF16";
}

std::string smaller_weights_text(const models::LoadOptions& load, bool fits_in_12_bits) {
  std::vector<std::string> ways;
  if (load.activation == DType::f32) {
    ways.push_back(
        fmt::format("--dtype bf16 makes {}keys, values and activations smaller (it rounds the "
                    "weights, once)",
                    load.f16_share < 1 ? "the weights, " : ""));
  }
  if (load.quantize != kernels::Quantize::q4 && load.blocks.parameters == 0) {
    const bool is_plain = load.quantize == kernels::Quantize::none;
    if (fits_in_12_bits) ways.emplace_back("--lossless on makes it fit with the same answers");
    ways.push_back(
        fmt::format("--quantize {} makes the weights smaller", is_plain ? "q8 or q4" : "q4"));
  }
  return fmt::format("{}", fmt::join(ways, ", "));
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

ModelOutline outline_of(const RunSettings& settings, const WeightUse& use) {
  const ModelSource& source = settings.source;
  const TypeOptions& types = settings.types;
  const kernels::Quantize quantize = packing_of(types);
  models::Config config = source.config();
  if (const std::string format = published_format(types); !format.empty()) {
    if (has_files(settings)) {
      throw Error(ErrorKind::usage,
                  fmt::format("--quantize {}: is read where it is published, and made up with "
                              "--random-weights; q8 or q4 packs the weights of any files",
                              format));
    }
    config = config.with_quantization(format);
  }
  const models::Family& family = models::family_of(config);
  std::optional<ModelSource> head = head_of(settings);
  std::optional<TensorFiles> opened;
  if (has_files(settings)) opened.emplace(source.tensors());
  const TensorFiles* const files = opened ? &*opened : nullptr;
  models::Plan plan = read_plan(settings, files, config, family, head);
  const bool is_packed = types.quantize != QuantizeChoice::none;
  const DType activation =
      models::activation_dtype(plan, is_packed ? DType::bf16 : types.activation);
  const auto published = [&](auto count) {
    return published_parameters(files, config, plan, count);
  };
  const models::PackedBlocks blocks = packed_blocks(settings, files, config, plan, activation);
  models::GeometryOptions sizes = {
      .load = {.activation = activation,
               .quantize = quantize,
               .fp8_parameters =
                   published([](const auto&... known) { return models::fp8_parameters(known...); }),
               .mxfp4_parameters = published(
                   [](const auto&... known) { return models::mxfp4_parameters(known...); }),
               .blocks = blocks,
               .f16_share = f16_share(files, config, plan, activation),
               // A head in blocks is small, and stays as it is.
               .draft_head_q4 = plan.draft && !plan.draft->is_apart() &&
                                activation == DType::bf16 && blocks.head_bytes == 0},
      .kv = types.kv,
      .state = types.state,
      .page_tokens = types.page_tokens,
      .with_drafts = plan.draft.has_value()};
  if (types.quantize == QuantizeChoice::mxfp4 && sizes.load.mxfp4_parameters == 0) {
    throw Error(ErrorKind::usage, "--quantize mxfp4: only experts are published so, and " +
                                      source.name() +
                                      " has none; fp8, q8 and q4 are for all linear weights");
  }
  models::Geometry geometry = models::geometry_of(plan, sizes);
  if (types.kv && geometry.pages.empty()) fail_without_keys(source.name());
  if (may_be_lossless(types, activation, quantize)) {
    sizes.load.lossless =
        types.lossless ? *types.lossless : wants_lossless(settings, plan, geometry.load, use);
    geometry.load = sizes.load;
  }
  if (plan.draft && settings.drafts.may_load_layer &&
      leave_little_memory(settings, plan, geometry.load)) {
    RunSettings without = settings;
    without.drafts.may_load_layer = false;
    return outline_of(without, use);
  }
  return {.config = std::move(config),
          .family = &family,
          .plan = std::move(plan),
          .sizes = sizes,
          .geometry = std::move(geometry),
          .head = std::move(head)};
}

std::vector<models::LosslessMatrix> sample_lossless(const RunSettings& settings,
                                                    ModelOutline& outline) {
  models::LoadOptions& load = outline.geometry.load;
  if (!load.lossless || !has_files(settings)) return {};
  std::vector<models::LosslessMatrix> matrices;
  try {
    TensorFiles files = settings.source.tensors();
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

void check_loadable(const ModelSource& source, const RunSettings& settings) {
  if (settings.types.random_weights || source.has_tensors()) return;
  if (source.missing_files()) source.tensors();  // throws, naming them
  throw Error(ErrorKind::model, source.lack_of_tensors());
}

models::Model load_weights_of(const RunSettings& settings, const ModelOutline& outline,
                              kernels::Queue& queue, const models::MakeRoom& make_room,
                              ProgressLine* progress, const models::PackedCall& packed) {
  models::LoadCalls calls = {.make_room = make_room, .loaded = {}, .packed = packed};
  const std::string all =
      bytes_text(weight_bytes(outline.plan, settings.device, outline.geometry.load));
  if (progress != nullptr) {
    calls.loaded = [&](std::size_t bytes) {
      progress->show(fmt::format("loading {} of {}", bytes_text(bytes), all));
    };
  }
  std::optional<models::HeadFolder> head;
  if (outline.head) head.emplace(outline.head->config());
  models::HeadFolder* const with = head ? &*head : nullptr;
  if (const std::optional<std::uint64_t>& seed = settings.types.random_weights) {
    return models::random_model(queue, outline.config, *seed, outline.sizes, calls, with);
  }
  TensorFiles files = settings.source.tensors();
  if (head) head->files = outline.head->tensors();
  return models::load_model(queue, outline.config, files, outline.sizes, calls, with);
}

std::size_t BareModel::runner_bytes(const models::RunnerOptions& options) const {
  return models::ModelRunner::workspace_bytes(queue.device(), model.plan, model.geometry, options,
                                              queue.threads()) +
         options.memory.layout.store_bytes();
}

BareModel open_bare(const RunSettings& settings, const WeightUse& use,
                    const models::PackedCall& packed) {
  const std::size_t budget = settings.memory.bytes;
  ModelOutline outline = outline_of(settings, use);
  check_loadable(settings.source, settings);
  const models::LoadOptions& load = outline.geometry.load;
  const std::size_t weights = weight_bytes(outline.plan, settings.device, load);
  if (weights > budget) {
    const std::size_t saved = lossless_saves(outline.plan, settings.device, load);
    const std::string smaller = smaller_weights_text(load, saved > 0 && weights - saved <= budget);
    const bool is_card = settings.device == kernels::Device::cuda;
    throw Error(ErrorKind::memory,
                fmt::format("{}: the weights take {}, --memory allows {}{}{}{}",
                            settings.source.name(), bytes_text(weights), bytes_text(budget),
                            is_card ? "" : limit_note(memory_limits(), weights),
                            smaller.empty() ? "" : "; ", smaller));
  }
  kernels::Queue queue = make_queue(settings);
  models::Model model = load_weights_of(settings, outline, queue, {}, nullptr, packed);
  return {.settings = settings,
          .outline = std::move(outline),
          .queue = std::move(queue),
          .model = std::move(model)};
}

}  // namespace hyb::app
