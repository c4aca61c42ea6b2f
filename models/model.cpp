#include "models/model.h"

#include "core/base/error.h"
#include "models/families.h"
#include "models/weight_list.h"

namespace hyb::models {
namespace {

Model model_of(kernels::Queue& queue, const Config& config, const Family& family,
               WeightProvider& provider, DType activation) {
  if (!family.runs) {
    throw Error(ErrorKind::model, config.source() + ": model_type " + config.model_type() +
                                      " can be inspected (hyb inspect, hyb fit) but not run yet");
  }
  Model model;
  model.plan = family.plan(config);
  model.geometry = geometry_of(model.plan, {.kv = activation, .activation = activation});
  model.weights = load_weights(queue, model.plan, provider, {.activation = activation});
  return model;
}

}  // namespace

DType activation_dtype(const Plan& plan, std::optional<DType> wanted) {
  if (wanted) return *wanted;
  return plan.weight_dtype == DType::bf16 ? DType::bf16 : DType::f32;
}

Model load_model(kernels::Queue& queue, const Config& config, TensorFiles& files,
                 DType activation) {
  const Family& family = family_of(config);
  const WeightIndex index(family.plan(config), family, files);
  files.map();
  FileWeights provider(index);
  return model_of(queue, config, family, provider, activation);
}

Model random_model(kernels::Queue& queue, const Config& config, std::uint64_t seed,
                   DType activation) {
  const Family& family = family_of(config);
  RandomWeights provider(queue, seed, family.plan(config).tied_head);
  return model_of(queue, config, family, provider, activation);
}

}  // namespace hyb::models
