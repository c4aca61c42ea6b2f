#include "models/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/file.h"
#include "kernels/transfer.h"
#include "models/drafting/eagle3.h"
#include "models/published_formats.h"
#include "models/weight_index.h"

namespace hyb::models {
namespace {

/// `columns`: as eagle3_columns, of a plan with an EAGLE-3 head.
Model model_of(kernels::Queue& queue, Plan plan, WeightProvider& provider,
               const GeometryOptions& options, const LoadCalls& calls,
               std::span<const std::int32_t> columns) {
  Model model;
  model.plan = std::move(plan);
  model.geometry = geometry_of(model.plan, options);
  model.weights = load_weights(queue, model.plan, provider, model.geometry.load, calls);
  if (columns.empty()) return model;
  kernels::Buffer& table = model.weights.vectors.emplace_back(queue.device(), columns.size_bytes());
  kernels::upload(queue, table.data(), std::as_bytes(columns));
  model.weights.draft->columns = table.tensor(0, DType::i32, {std::ssize(columns)});
  return model;
}

/// The files of a model and those of its head, whose layers come after the model's.
class FilesWithHead : public WeightProvider {
 public:
  FilesWithHead(const WeightIndex& model, const WeightIndex& head, std::int32_t layers)
      : model_(model), head_(head), layers_(layers) {}

  bool has(const WeightKey& key) const override { return (is_head(key) ? head_ : model_).has(key); }
  kernels::WeightSource matrix(const WeightKey& key, std::int64_t experts, std::int64_t rows,
                               std::int64_t columns, bool transposed) override {
    return of(key).matrix(key, experts, rows, columns, transposed);
  }
  std::vector<float> vector(const WeightKey& key, std::int64_t count) override {
    return of(key).vector(key, count);
  }
  void release(const WeightKey& key) override { of(key).release(key); }

 private:
  bool is_head(const WeightKey& key) const { return key.layer >= layers_; }
  FileWeights& of(const WeightKey& key) { return is_head(key) ? head_ : model_; }

  FileWeights model_, head_;
  std::int32_t layers_;
};

/// Refuses tensors of a head that are not known: what they do would be left out of the drafts.
void refuse_extra(const WeightIndex& index, const TensorFiles& files, HeadKind kind) {
  if (index.extra().empty()) return;
  throw Error(ErrorKind::model,
              fmt::format("{}: tensor {} is of no {} head that hyb runs; leave --draft-model out",
                          files.path_of(index.extra().front()).string(),
                          quote_name(index.extra().front()), name_of(kind)));
}

/// A head's own embedding must be the model's, which serves.
void check_embedding(const TensorFiles& head, const TensorView& embed) {
  constexpr std::string_view name = "embed_tokens.weight";
  if (head.find(name) == nullptr) return;
  const TensorView own = head.view(name);
  if (own.dtype == embed.dtype && std::ranges::equal(own.bytes, embed.bytes)) return;
  throw Error(ErrorKind::model,
              fmt::format("{}: tensor {} is not the model's embedding: this head is for another "
                          "model, or has one of its own, which hyb does not run",
                          head.path_of(name).string(), name));
}

/// Weights that the plan does not use may mean that config.json belongs to another model.
void report_extra(const WeightIndex& index, const TensorFiles& files) {
  const std::vector<std::string>& extra = index.extra();
  if (extra.empty()) return;
  std::vector<std::string> named;
  for (std::size_t i = 0; i < std::min<std::size_t>(extra.size(), 3); ++i) {
    named.push_back(quote_name(extra[i]));
  }
  log::warning(
      fmt::format("{}: {} tensors are not used, {} asks for none of: {}{}; "
                  "hyb inspect -v lists them",
                  files.source(), extra.size(), files.outline_name(), fmt::join(named, ", "),
                  named.size() < extra.size() ? ", ..." : ""));
}

/// A stored head must equal the embedding where config.json says that they are tied.
void check_tied_head(const Plan& plan, const Family& family, const TensorFiles& files,
                     const WeightIndex& index) {
  if (!plan.tied_head) return;
  for (const std::string_view name : files.names()) {
    if (role_of(family, name) != "head") continue;
    const TensorView head = files.view(name);
    const TensorView embed = index.view({"embed"});
    if (head.dtype == embed.dtype && std::ranges::equal(head.bytes, embed.bytes)) continue;
    throw Error(ErrorKind::model,
                fmt::format("{}: {} is not the embedding, but config.json says that the head is "
                            "tied; if it is not, set tie_word_embeddings to false",
                            files.path_of(name).string(), quote_name(std::string(name))));
  }
}

/// The line of weights that are in no file.
void report_made(const Weights& weights, std::uint64_t seed,
                 std::chrono::steady_clock::time_point start) {
  constexpr std::string_view codes[] = {"plain", "FP8", "q8", "q4", "12 bits", "MXFP4", "GGUF"};
  std::vector<std::string> counts;
  for (std::size_t i = 0; i < weights.matrices.size(); ++i) {
    if (weights.matrices[i] == 0) continue;
    counts.push_back(fmt::format("{} {}", weights.matrices[i], codes[i]));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  log::info(fmt::format("weights: made up from seed {} in {:.1f} s, {:.2f} GiB; of the matrices {}",
                        seed, seconds.count(), static_cast<double>(weights.bytes()) / (1U << 30),
                        fmt::join(counts, ", ")));
}

}  // namespace

DType activation_dtype(const Plan& plan, std::optional<DType> wanted) {
  if (wanted) return *wanted;
  return plan.weight_dtype == DType::bf16 ? DType::bf16 : DType::f32;
}

Plan plan_with_head(const Config& config, const Config* head, bool with_drafts) {
  Plan plan = plan_of(config, with_drafts && head == nullptr);
  if (head != nullptr) plan.draft = head_of(*head, plan);
  return plan;
}

Model load_model(kernels::Queue& queue, const Config& config, TensorFiles& files,
                 const GeometryOptions& options, const LoadCalls& calls, HeadFolder* head) {
  const Family& family = family_of(config);
  Plan plan =
      plan_with_head(config, head == nullptr ? nullptr : &head->config, options.with_drafts);
  const WeightIndex index(plan, family, files);
  report_extra(index, files);
  files.map();
  check_tied_head(plan, family, files, index);
  if (head == nullptr) {
    FileWeights provider(index);
    return model_of(queue, std::move(plan), provider, options, calls, {});
  }
  TensorFiles& head_files = head->files.value();
  const HeadKind kind = plan.draft->eagle() != nullptr ? HeadKind::eagle3 : HeadKind::dflash;
  const WeightIndex head_index(plan, head_family(kind), head_files);
  refuse_extra(head_index, head_files, kind);
  head_files.map();
  check_embedding(head_files, index.view({"embed"}));
  std::vector<std::int32_t> columns;
  if (plan.draft->eagle() != nullptr) columns = eagle3_columns(plan, head_files);
  FilesWithHead provider(index, head_index, static_cast<std::int32_t>(plan.layers.size()));
  return model_of(queue, std::move(plan), provider, options, calls, columns);
}

std::vector<LosslessMatrix> sample_lossless(const Config& config, TensorFiles& files,
                                            const LoadOptions& options) {
  const Family& family = family_of(config);
  const Plan plan = family.plan(config);
  const WeightIndex index(plan, family, files);
  files.map();
  FileWeights provider(index);
  return sample_lossless(plan, provider, options);
}

Model random_model(kernels::Queue& queue, const Config& config, std::uint64_t seed,
                   const GeometryOptions& options, const LoadCalls& calls, const HeadFolder* head) {
  Plan plan =
      plan_with_head(config, head == nullptr ? nullptr : &head->config, options.with_drafts);
  RandomWeights provider(seed, plan.weight_dtype == DType::f16 ? DType::f16 : DType::bf16,
                         published_types(plan, family_of(config), config));
  std::vector<std::int32_t> columns;
  if (head != nullptr && plan.draft->eagle() != nullptr) columns = spread_eagle3_columns(plan);
  const auto start = std::chrono::steady_clock::now();
  Model model = model_of(queue, std::move(plan), provider, options, calls, columns);
  report_made(model.weights, seed, start);
  return model;
}

}  // namespace hyb::models
