#include "models/weights.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/log.h"
#include "kernels/linear/bits12.h"
#include "kernels/linear/bits12_rows.h"
#include "kernels/linear/pack.h"
#include "kernels/linear/quantize.h"
#include "kernels/transfer.h"
#include "kernels/weight_source.h"

namespace hyb::models {
namespace {

/// The type of a packed matrix, and how it is quantised.
struct PackedAs {
  DType dtype;
  kernels::Quantize quantize;

  bool operator==(const PackedAs&) const = default;
};

PackedAs packed_as(Packing packing, const LoadOptions& options) {
  switch (packing) {
    case Packing::linear:
      return {options.activation, linear_quantize(options)};
    case Packing::head:
      return {options.activation, head_quantize(options)};
    case Packing::draft_head:
      return {options.activation, kernels::Quantize::q4};
    case Packing::f32:
      return {DType::f32, kernels::Quantize::none};
    case Packing::activation:
      break;
  }
  return {options.activation, kernels::Quantize::none};
}

/// Reads what it is shown, packs it, and releases the memory of the source.
class WeightLoader : public WeightVisitor {
  /// Returns what `make` makes; tries once more where it found no memory and some was freed.
  template <typename Make>
  auto with_room(const Make& make) const {
    try {
      return make();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::memory || !calls_.make_room || !calls_.make_room()) throw;
    }
    return make();
  }

 public:
  WeightLoader(kernels::Queue& queue, WeightProvider& provider, const LoadOptions& options,
               const LoadCalls& calls)
      : queue_(queue), provider_(provider), options_(options), calls_(calls) {}

  bool is_fused(Role fused, Role, std::int32_t) override {
    return provider_.has({.role = fused, .layer = layer()});
  }
  bool copies_head() const override { return options_.draft_head_q4; }

  kernels::Weight pack(const MatrixRows& rows, Packing packing) override {
    const kernels::WeightSource source = rows.source();
    const PackedAs as = packed_as(packing, source);
    kernels::Weight packed =
        with_room([&] { return kernels::Weight::pack(queue_, source, as.dtype, as.quantize); });
    if (packing != Packing::draft_head) count_rounded(source, as, packed);
    packed_bytes_ += packed.owned_bytes();
    count_ordered(packed);
    for (const kernels::Weight& part : packed.parts()) count_ordered(part);
    ++matrices_[static_cast<std::size_t>(packed.code())];
    if (packed.code() == kernels::WeightCode::bits12) {
      numbers_ += static_cast<double>(packed.experts() * packed.rows() * packed.columns());
      patches_ += packed.patch_count();
    }
    for (const auto& [role, expert] : rows.stored()) {
      provider_.release({.role = role, .layer = layer(), .expert = expert});
    }
    if (calls_.loaded) calls_.loaded(packed_bytes_);
    if (calls_.packed) calls_.packed(packed, layer(), rows);
    return packed;
  }

  /// Codes that are published are kept where they are all of a weight, and have to be for bf16.
  bool pack_alike(const MatrixRows& a, Packing packing_a, const MatrixRows& b,
                  Packing packing_b) override {
    const kernels::WeightSource from_a = a.source(), from_b = b.source();
    return packed_as(packing_a, from_a) == packed_as(packing_b, from_b) &&
           (options_.activation != DType::bf16 ||
            (from_a.is_all(DType::f8_e4m3) == from_b.is_all(DType::f8_e4m3) &&
             from_a.groups().has_value() == from_b.groups().has_value()));
  }

  /// Moves the buffers of small tensors to the weights, and their byte count.
  void finish(Weights& weights) {
    weights.vectors = std::move(vectors_);
    weights.packed_bytes = packed_bytes_;
    weights.ordered_columns = ordered_columns_;
    weights.matrices = matrices_;
    if (options_.lossless) {
      log::debug(
          fmt::format("weights: {} of {} matrices in 12 bits, {:.2e} of their numbers by "
                      "patches",
                      matrices_[static_cast<std::size_t>(kernels::WeightCode::bits12)], packed_,
                      static_cast<double>(patches_) / std::max(1.0, numbers_)));
    }
    if (rounded_ == 0) return;
    log::info(fmt::format(
        "weights: {} of {} matrices, {} in the files, were rounded to bf16, once; --dtype f32 "
        "keeps them exact",
        rounded_, packed_, fmt::join(rounded_types_, ", ")));
  }

 private:
  PackedAs packed_as(Packing packing, const kernels::WeightSource& source) const {
    PackedAs as = models::packed_as(packing, options_);
    if (options_.activation == DType::f32 && source.is_all(DType::f16)) as.dtype = DType::f16;
    return as;
  }

  void count_ordered(const kernels::Weight& packed) {
    if (packed.order(0).empty()) return;
    ordered_columns_ = std::max(ordered_columns_, packed.columns());
  }

  /// Quantised weights lose more than this rounding: they are not counted.
  void count_rounded(const kernels::WeightSource& source, const PackedAs& as,
                     const kernels::Weight& packed) {
    ++packed_;
    if (as.dtype != DType::bf16 || as.quantize == kernels::Quantize::q8 ||
        as.quantize == kernels::Quantize::q4) {
      return;
    }
    bool is_rounded = false;
    const kernels::Weight* part = packed.parts().empty() ? &packed : packed.parts().data();
    std::int64_t end = packed.experts() * part->rows();
    for (const kernels::WeightStrip& strip : source.strips) {
      while (strip.first >= end) end += (++part)->rows();
      const bool keeps_blocks =
          part->code() == kernels::WeightCode::blocks || part->code() == kernels::WeightCode::mxfp4;
      if (strip.block != nullptr ? keeps_blocks
          : strip.is_grouped()   ? part->code() == kernels::WeightCode::groups
                                 : strip.dtype != DType::f16 && strip.dtype != DType::f32) {
        continue;
      }
      is_rounded = true;
      rounded_types_.emplace(strip.block != nullptr ? strip.block->name
                             : strip.is_grouped()   ? "numbers in groups"
                                                    : name_of(strip.dtype));
    }
    rounded_ += is_rounded ? 1 : 0;
  }

  kernels::WeightSource numbers(const Matrix& matrix) override {
    return provider_.matrix({.role = matrix.role, .layer = layer(), .expert = matrix.expert},
                            std::max<std::int64_t>(matrix.experts, 1), matrix.rows, matrix.columns,
                            matrix.transposed);
  }

  float* visit_small(std::span<const Small> tensors) override {
    std::vector<std::vector<float>> each;
    for (const Small& tensor : tensors) {
      if (!tensor.constants.empty()) {
        each.push_back(tensor.constants);
        continue;
      }
      const WeightKey key{.role = tensor.role, .layer = layer()};
      std::vector<float> once = provider_.vector(key, tensor.count());
      provider_.release(key);
      if (tensor.alternating) {
        once = halves_of_rows(once, static_cast<std::size_t>(tensor.shape.back()));
      }
      for (float& number : once) {
        number = tensor.is_log ? static_cast<float>(-std::exp(static_cast<double>(number)))
                               : number * tensor.factor;
      }
      each.push_back(std::move(once));
    }
    return upload(joined(tensors, each));
  }

  /// Takes of every row the numbers at even places, then the others.
  static std::vector<float> halves_of_rows(std::span<const float> rows, std::size_t width) {
    std::vector<float> halves;
    halves.reserve(rows.size());
    for (std::size_t row = 0; row < rows.size(); row += width) {
      for (const std::size_t half : {std::size_t{0}, std::size_t{1}}) {
        for (std::size_t i = half; i < width; i += 2) halves.push_back(rows[row + i]);
      }
    }
    return halves;
  }

  float* upload(const std::vector<float>& values) {
    kernels::Buffer& buffer = vectors_.emplace_back(
        with_room([&] { return kernels::Buffer(queue_.device(), values.size() * sizeof(float)); }));
    kernels::upload(queue_, buffer.data(), std::as_bytes(std::span(values)));
    return reinterpret_cast<float*>(buffer.data());
  }

  kernels::Queue& queue_;
  WeightProvider& provider_;
  const LoadOptions& options_;
  const LoadCalls& calls_;
  std::vector<kernels::Buffer> vectors_;
  std::size_t packed_bytes_ = 0;
  std::int64_t ordered_columns_ = 0;           ///< as Weights has them
  std::array<std::int64_t, 8> matrices_ = {};  ///< the same
  std::int64_t packed_ = 0, rounded_ = 0;      ///< matrices
  std::set<std::string, std::less<>> rounded_types_;
  std::int64_t patches_ = 0;
  double numbers_ = 0;  ///< of matrices in 12 bits
};

/// Counts the bytes of what it is shown, as loading would pack it.
class ByteCounter : public WeightVisitor {
 public:
  ByteCounter(kernels::Device device, const LoadOptions& options)
      : device_(device), options_(options) {}

  std::size_t packed_bytes() const { return packed_bytes_; }
  std::size_t vector_bytes() const { return vector_bytes_; }

  bool copies_head() const override { return options_.draft_head_q4; }

  kernels::Weight pack(const MatrixRows& rows, Packing packing) override {
    const PackedAs as = packed_as(packing, options_);
    const std::int64_t one = as.quantize == kernels::Quantize::none
                                 ? plain_bytes(as.dtype, rows.rows(), rows.columns())
                                 : coded_bytes(as.quantize, rows.rows(), rows.columns());
    packed_bytes_ += static_cast<std::size_t>(rows.experts()) * static_cast<std::size_t>(one);
    return {};
  }

  bool pack_alike(const MatrixRows&, Packing packing_a, const MatrixRows&,
                  Packing packing_b) override {
    return packed_as(packing_a, options_) == packed_as(packing_b, options_);
  }

 private:
  float* visit_small(std::span<const Small> tensors) override {
    for (const Small& tensor : tensors) {
      vector_bytes_ += static_cast<std::size_t>(tensor.count() * tensor.times) * sizeof(float);
    }
    return nullptr;
  }

  std::int64_t plain_bytes(DType dtype, std::int64_t rows, std::int64_t columns) const {
    if (dtype == DType::f32 && options_.activation == DType::f32 && options_.f16_share > 0) {
      const std::int64_t wide = stored_bytes(dtype, rows, columns);
      const std::int64_t saved = wide - stored_bytes(DType::f16, rows, columns);
      return wide - static_cast<std::int64_t>(options_.f16_share * static_cast<double>(saved));
    }
    return stored_bytes(dtype, rows, columns);
  }

  std::int64_t stored_bytes(DType dtype, std::int64_t rows, std::int64_t columns) const {
    if (device_ != kernels::Device::cpu) {
      return rows * columns * static_cast<std::int64_t>(size_of(dtype));
    }
    return kernels::panel_shape(dtype, rows, columns).expert_bytes();
  }

  std::int64_t coded_bytes(kernels::Quantize quantize, std::int64_t rows,
                           std::int64_t columns) const {
    if (quantize == kernels::Quantize::bits12 && device_ != kernels::Device::cpu) {
      const kernels::Bits12RowsShape shape = {rows, columns};
      return bits12_rows_take(shape) ? shape.expert_bytes()
                                     : stored_bytes(DType::bf16, rows, columns);
    }
    if (quantize == kernels::Quantize::bits12) {
      return kernels::bits12_shape(rows, columns).expert_bytes();
    }
    const kernels::WeightCode code =
        quantize == kernels::Quantize::q4 ? kernels::WeightCode::q4 : kernels::WeightCode::q8;
    if (device_ != kernels::Device::cpu) {
      return kernels::CodedRowsShape{code, rows, columns}.expert_bytes();
    }
    return kernels::coded_shape(code, rows, columns, kernels::quantize_group).expert_bytes();
  }

  kernels::Device device_;
  const LoadOptions& options_;
  std::size_t packed_bytes_ = 0, vector_bytes_ = 0;
};

/// Samples the matrices that would take 12 bits.
class LosslessSampler : public WeightVisitor {
 public:
  LosslessSampler(WeightProvider& provider, const LoadOptions& options)
      : provider_(provider), options_(options) {
    options_.lossless = true;
  }

  std::vector<LosslessMatrix> matrices;

  bool is_fused(Role fused, Role, std::int32_t) override {
    return provider_.has({.role = fused, .layer = layer()});
  }

  kernels::Weight pack(const MatrixRows& rows, Packing packing) override {
    constexpr std::int64_t panels = 2;
    const kernels::WeightSource source = rows.source();
    const PackedAs as = packed_as(packing, options_);
    const bool has_blocks = std::any_of(source.strips.begin(), source.strips.end(),
                                        [](const auto& strip) { return strip.block != nullptr; });
    if (as.quantize == kernels::Quantize::bits12 && !source.is_all(DType::f8_e4m3) &&
        !source.is_all(DType::u8) && !source.groups() && !has_blocks) {
      matrices.push_back({.layer = layer(),
                          .role = rows.stored().front().first,
                          .experts = rows.experts(),
                          .rows = rows.rows(),
                          .columns = rows.columns(),
                          .sample = kernels::sample_bits12(source, panels)});
    }
    for (const auto& [role, expert] : rows.stored()) {
      provider_.release({.role = role, .layer = layer(), .expert = expert});
    }
    return {};
  }

  /// Compares as loading does, for what may take 12 bits.
  bool pack_alike(const MatrixRows& a, Packing packing_a, const MatrixRows& b,
                  Packing packing_b) override {
    return packed_as(packing_a, options_) == packed_as(packing_b, options_) &&
           a.source().is_all(DType::f8_e4m3) == b.source().is_all(DType::f8_e4m3);
  }

 private:
  kernels::WeightSource numbers(const Matrix& matrix) override {
    return provider_.matrix({.role = matrix.role, .layer = layer(), .expert = matrix.expert},
                            std::max<std::int64_t>(matrix.experts, 1), matrix.rows, matrix.columns,
                            matrix.transposed);
  }
  float* visit_small(std::span<const Small>) override { return nullptr; }

  WeightProvider& provider_;
  LoadOptions options_;
};

/// Returns how many bytes less published F8_E4M3, MXFP4 and blocks take than was counted for them.
std::int64_t published_savings(const LoadOptions& options) {
  constexpr double fp8_bytes = 1 + 4.0 / 128;  // with a scale for 128 columns
  constexpr double mxfp4_bytes = 4.25 / 8;
  if (options.activation != DType::bf16) return 0;
  const bool is_q4 = options.quantize == kernels::Quantize::q4;
  const double counted = is_q4                                       ? 4.5 / 8
                         : options.quantize == kernels::Quantize::q8 ? 8.5 / 8
                         : options.lossless                          ? 12.0 / 8
                                                                     : 2;
  double saved = static_cast<double>(options.mxfp4_parameters) * (counted - mxfp4_bytes);
  if (!is_q4) saved += static_cast<double>(options.fp8_parameters) * (counted - fp8_bytes);
  saved += static_cast<double>(options.blocks.parameters) * counted - options.blocks.bytes;
  return static_cast<std::int64_t>(saved);
}

/// Ends uploads where loading fails: that failure is then the one to report.
class Uploads {
 public:
  explicit Uploads(kernels::Queue& queue) : queue_(queue) {}
  void end() {
    is_ended_ = true;
    kernels::end_uploads(queue_);
  }
  ~Uploads() {
    if (is_ended_) return;
    try {
      kernels::end_uploads(queue_);
    } catch (const Error&) {
    }
  }
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

 private:
  kernels::Queue& queue_;
  bool is_ended_ = false;
};

/// The names of what a block has besides its parts.
struct BlockRoles {
  Role norm, post_norm, factor;
};
constexpr BlockRoles block_roles[] = {{"block0.norm", "block0.post_norm", "block0.factor"},
                                      {"block1.norm", "block1.post_norm", "block1.factor"},
                                      {"block2.norm", "block2.post_norm", "block2.factor"}};

/// The names of the norms of parts, in a block that has some.
struct PartNormRoles {
  Role norm, post_norm;
};
constexpr PartNormRoles part_norm_roles[] = {{"part0.norm", "part0.post_norm"},
                                             {"part1.norm", "part1.post_norm"}};

void visit_part_norms(const Plan& plan, const Block& described, WeightVisitor& visitor,
                      BlockWeights& block) {
  if (!described.norms_parts) return;
  require(described.post_norm && described.norm == Norm::none &&
              described.parts.size() == std::size(part_norm_roles),
          "weights: two parts have norms of their own");
  for (const PartNormRoles& roles : part_norm_roles) {
    block.part_norms.push_back(visitor.vector(roles.norm, plan.width));
    block.part_post_norms.push_back(visitor.vector(roles.post_norm, plan.width));
  }
}

void visit_low_rank(const Plan& plan, const Block& described, WeightVisitor& visitor,
                    BlockWeights& block) {
  if (described.low_rank == 0) return;
  require(described.norm == Norm::rms, "weights: a low-rank residual reads what is normed");
  block.left = visitor.matrix("low_rank.left", described.low_rank, plan.width);
  block.right = visitor.matrix("low_rank.right", plan.width, described.low_rank);
  block.low_rank_norm = visitor.vector("low_rank.norm", plan.width);
}

AltUpWeights visit_altup(const AltUp& altup, std::int64_t width, WeightVisitor& visitor) {
  const std::int64_t streams = altup.streams;
  AltUpWeights weights;
  weights.router_norm = visitor.vector("altup.router_norm", width);
  weights.scale = visitor.vector("altup.scale", width);
  weights.router = visitor.matrix("altup.router", streams, width, Packing::activation);
  weights.prediction = visitor.small_matrix("altup.prediction", streams * streams, streams);
  weights.correction = visitor.small_matrix("altup.correction", streams, streams);
  return weights;
}

/// Tokens that have no row of their own take the first.
kernels::Weight visit_inputs_embed(const Plan& plan, WeightVisitor& visitor) {
  const std::int64_t width = plan.layer_inputs_width(), own = plan.layer_inputs->vocab;
  const StoredMatrix stored = visitor.stored("layer_inputs.embed", own, width);
  MatrixRows rows(width);
  rows.append(stored);
  for (std::int64_t row = own; row < plan.vocab; ++row) rows.append(stored, 0, 1);
  return visitor.pack(rows, Packing::activation);
}

LayerWeights visit_layer(const Plan& plan, const Layer& layer, WeightVisitor& visitor) {
  require(layer.blocks.size() <= std::size(block_roles),
          "weights: a layer has at most three blocks");
  LayerWeights weights;
  if (plan.altup) weights.altup = visit_altup(*plan.altup, plan.width, visitor);
  for (std::size_t i = 0; i < layer.blocks.size(); ++i) {
    BlockWeights& block = weights.blocks.emplace_back();
    const Block& described = layer.blocks[i];
    if (described.norm != Norm::none) block.norm = visitor.vector(block_roles[i].norm, plan.width);
    if (described.post_norm) {
      block.post_norm = visitor.vector(block_roles[i].post_norm, plan.width);
    }
    visit_part_norms(plan, described, visitor, block);
    if (described.has_factor) block.factor = visitor.vector(block_roles[i].factor, 1);
    visit_low_rank(plan, described, visitor, block);
    for (const Part& part : described.parts) {
      block.parts.push_back(std::visit(
          [&](const auto& known) -> PartWeights { return known.weights(visitor, plan.width); },
          part));
    }
  }
  return weights;
}

/// Its layers are those after the last.
DraftWeights visit_draft(const Plan& plan, const DraftLayer& draft, WeightVisitor& visitor) {
  const auto first = static_cast<std::int32_t>(plan.layers.size());
  visitor.set_layer(first);
  DraftWeights weights;
  if (draft.runs_in_passes()) {
    weights.embedding_norm = visitor.vector("draft.embedding_norm", plan.width);
  }
  weights.hidden_norm = visitor.vector("draft.hidden_norm", plan.width);
  const std::int64_t joined = draft.is_apart() ? std::ssize(draft.taps()) : 2;
  weights.fc = visitor.matrix("draft.fc", plan.width, joined * plan.width);
  for (std::size_t i = 0; i < draft.layers.size(); ++i) {
    visitor.set_layer(first + static_cast<std::int32_t>(i));
    weights.layers.push_back(visit_layer(plan, draft.layers[i], visitor));
  }
  weights.norm = visitor.vector("draft.norm", plan.width);
  if (const Eagle3* const eagle = draft.eagle()) {
    weights.head = visitor.matrix("draft.head", eagle->vocab, plan.width, Packing::head);
  }
  return weights;
}

}  // namespace

std::size_t Weights::bytes() const {
  std::size_t sum = packed_bytes;
  for (const kernels::Buffer& buffer : vectors) sum += buffer.bytes();
  return sum;
}

Weights visit_weights(const Plan& plan, WeightVisitor& visitor, WeightsOf of) {
  Weights weights;
  if (of == WeightsOf::head) {
    weights.draft = visit_draft(plan, *plan.draft, visitor);
    return weights;
  }
  visitor.set_layer(-1);
  weights.embed = visitor.matrix("embed", plan.vocab, plan.width,
                                 plan.tied_head ? Packing::head : Packing::activation);
  if (plan.layer_inputs) {
    const std::int64_t all = plan.layer_inputs_width();
    weights.inputs_embed = visit_inputs_embed(plan, visitor);
    weights.inputs_projection = visitor.matrix("layer_inputs.projection", all, plan.width);
    weights.inputs_norm = visitor.vector("layer_inputs.norm", plan.layer_inputs->width);
  }
  if (plan.altup) {
    const std::int64_t others = plan.altup->streams - 1;
    weights.stream_projections =
        visitor.matrices("altup.projections", "altup.projection", others, plan.width);
    weights.stream_outputs = visitor.matrices("altup.outputs", "altup.output", others, plan.width);
  }
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    visitor.set_layer(static_cast<std::int32_t>(i));
    weights.layers.push_back(visit_layer(plan, plan.layers[i], visitor));
  }
  if (plan.draft && of == WeightsOf::all) {
    weights.draft = visit_draft(plan, *plan.draft, visitor);
  }
  visitor.set_layer(-1);
  weights.final_norm = visitor.vector("final_norm", plan.width);
  if (!plan.tied_head) weights.head = visitor.matrix("head", plan.vocab, plan.width, Packing::head);
  if (weights.draft && !plan.draft->is_apart() && visitor.copies_head()) {
    weights.draft->head = visitor.matrix(plan.tied_head ? Role("embed") : "head", plan.vocab,
                                         plan.width, Packing::draft_head);
  }
  return weights;
}

Weights load_weights(kernels::Queue& queue, const Plan& plan, WeightProvider& provider,
                     const LoadOptions& options, const LoadCalls& calls) {
  Uploads uploads(queue);
  WeightLoader loader(queue, provider, options, calls);
  Weights weights = visit_weights(plan, loader);
  loader.finish(weights);
  uploads.end();
  return weights;
}

std::vector<LosslessMatrix> sample_lossless(const Plan& plan, WeightProvider& provider,
                                            const LoadOptions& options) {
  LosslessSampler sampler(provider, options);
  visit_weights(plan, sampler);
  return std::move(sampler.matrices);
}

std::size_t bytes_above_12_bits(const LosslessMatrix& matrix) {
  const std::int64_t narrow =
      kernels::bits12_shape(matrix.rows, matrix.columns).expert_bytes() * matrix.experts;
  if (!matrix.sample.pays()) {
    const kernels::PanelShape wide = kernels::panel_shape(DType::bf16, matrix.rows, matrix.columns);
    return static_cast<std::size_t>(wide.expert_bytes() * matrix.experts - narrow);
  }
  const auto weights = static_cast<double>(matrix.experts * matrix.rows * matrix.columns);
  return static_cast<std::size_t>(weights * matrix.sample.share()) * sizeof(kernels::Bits12Patch);
}

std::size_t vector_bytes(const Plan& plan) {
  const LoadOptions options;
  ByteCounter counter(kernels::Device::cpu, options);
  visit_weights(plan, counter);
  const bool has_columns = plan.draft && plan.draft->eagle() != nullptr;
  const auto columns = has_columns ? static_cast<std::size_t>(plan.vocab) : std::size_t{0};
  return counter.vector_bytes() + columns * sizeof(std::int32_t);
}

std::size_t packed_bytes(const Plan& plan, kernels::Device device, const LoadOptions& options) {
  ByteCounter counter(device, options);
  visit_weights(plan, counter);
  const auto counted = static_cast<std::int64_t>(counter.packed_bytes() + options.above_12_bits);
  return static_cast<std::size_t>(counted - published_savings(options));
}

}  // namespace hyb::models
