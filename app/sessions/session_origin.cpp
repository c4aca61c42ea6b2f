#include "app/sessions/session_origin.h"

#include <algorithm>

#include "app/batch/model_identity.h"
#include "app/commands/commands.h"

namespace hyb::app {

namespace {

std::string device_text(const kernels::Queue& queue) {
  if (queue.device() == kernels::Device::cpu) return "cpu";
  return queue.batch_invariant() ? "cuda batch-invariant" : "cuda";
}

}  // namespace

SessionOrigin session_origin(Session& session, const ModelOptions& options) {
  const ModelSource& source = session.source();
  const Hash128 identity = model_identity(source, !options.random_weights);
  std::string weights = hex(identity);
  if (options.random_weights) weights += "-random-" + std::to_string(*options.random_weights);
  const models::Geometry& geometry = session.model().geometry;
  return {.model = source.name(),
          .fingerprint = {{"model", std::move(weights)},
                          // Of kernels and packing: another build may round differently.
                          {"hyb", version_text()},
                          {"tokenizer", hex(hash_of(source.read("tokenizer.json").value_or("")))},
                          {"activation_dtype", std::string(name_of(geometry.activation_dtype))},
                          {"quantize", std::string(models::name_of(geometry.load.quantize))},
                          {"kv_dtype", std::string(name_of(geometry.kv_dtype))},
                          {"state_dtype", std::string(name_of(geometry.state_dtype))},
                          // Pages lie differently on a card, and its answers differ.
                          {"device", device_text(session.queue())},
                          // Answers are the same to the bit within one level only.
                          {"isa", std::to_string(static_cast<int>(session.queue().isa()))}},
          .vocab = std::min(session.need_tokenizer().size(), session.model().plan.vocab)};
}

}  // namespace hyb::app
