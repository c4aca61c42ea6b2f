#include "models/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/file.h"
#include "models/families.h"
#include "models/published_formats.h"
#include "models/weight_index.h"

namespace hyb::models {
namespace {

Model model_of(kernels::Queue& queue, Plan plan, WeightProvider& provider,
               const GeometryOptions& options, const MakeRoom& make_room) {
  Model model;
  model.plan = std::move(plan);
  model.geometry = geometry_of(model.plan, options);
  model.weights = load_weights(queue, model.plan, provider, model.geometry.load, make_room);
  return model;
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
      fmt::format("{}: {} tensors are not used, config.json asks for none of: {}{}; "
                  "hyb inspect -v lists them",
                  files.files().front().path().parent_path().string(), extra.size(),
                  fmt::join(named, ", "), named.size() < extra.size() ? ", ..." : ""));
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

}  // namespace

DType activation_dtype(const Plan& plan, std::optional<DType> wanted) {
  if (wanted) return *wanted;
  return plan.weight_dtype == DType::bf16 ? DType::bf16 : DType::f32;
}

Model load_model(kernels::Queue& queue, const Config& config, TensorFiles& files,
                 const GeometryOptions& options, const MakeRoom& make_room) {
  const Family& family = family_of(config);
  Plan plan = plan_of(config, options.with_drafts);
  const WeightIndex index(plan, family, files);
  report_extra(index, files);
  files.map();
  check_tied_head(plan, family, files, index);
  FileWeights provider(index);
  return model_of(queue, std::move(plan), provider, options, make_room);
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
                   const GeometryOptions& options, const MakeRoom& make_room) {
  Plan plan = plan_of(config, options.with_drafts);
  RandomWeights provider(seed, plan.weight_dtype == DType::f16 ? DType::f16 : DType::bf16,
                         mxfp4_parameters(plan, family_of(config), config) > 0);
  return model_of(queue, std::move(plan), provider, options, make_room);
}

}  // namespace hyb::models
