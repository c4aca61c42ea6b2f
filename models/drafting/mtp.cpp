#include "models/drafting/mtp.h"

#include "kernels/linear/project.h"
#include "kernels/ops/gather.h"
#include "models/drafting/pass_draft_runner.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

class MtpDraftRunner : public PassDraftRunner {
 public:
  MtpDraftRunner(LayerRunner& layers, const StepLimits& limits)
      : PassDraftRunner(layers, limits, layers.plan().norm_eps) {}

 protected:
  void find_hidden(const Streams& streams) override {
    const Plan& model = layers_.plan();
    kernels::apply(queue_, norm_of(model.final_norm, layers_.weights().final_norm, model.norm_eps),
                   streams.residual, streams.normed);
  }

  void join(const StepTables& tables, const Tensor& hidden, const Tensor& pairs,
            const Streams& streams) override {
    make_pairs(tables, embedding_scale(layers_.plan(), layers_.activation()), hidden, pairs);
    kernels::project(queue_, {.x = pairs, .weight = &draft_weights().fc, .y = streams.residual});
  }

  void run_layers(const StepTables& tables, const Tensor& /*pairs*/,
                  const Streams& streams) override {
    run_all_layers(tables, streams);
  }

  Tensor logits(const Streams& streams, const Tensor& sample_rows, const Tensor& last,
                const Tensor& kept) override {
    const Plan& model = layers_.plan();
    kernels::gather_rows(queue_, {.x = streams.residual, .rows = sample_rows, .y = last});
    kernels::apply(queue_, draft_norm(draft_weights().norm), last, kept);
    const bool has_copy = draft_weights().head.rows() > 0;
    return layers_.head_logits(has_copy ? draft_weights().head : layers_.weights().output(), kept,
                               {}, model.logits_scale, model.logits_cap);
  }
};

}  // namespace

std::unique_ptr<DraftRunner> make_mtp_draft_runner(LayerRunner& layers, const StepLimits& limits) {
  return std::make_unique<MtpDraftRunner>(layers, limits);
}

}  // namespace hyb::models
