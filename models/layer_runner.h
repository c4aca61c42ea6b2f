#pragma once

#include <vector>

#include "models/geometry.h"
#include "models/parts/part.h"
#include "models/plan.h"
#include "models/store.h"
#include "models/weights.h"

namespace hyb::models {

/// Counts parts with pages and parts with slots in the order of the plan: the indices of the store.
struct Ordinals {
  std::size_t pages = 0;
  std::size_t slots = 0;
};

/// The residual stream, or the active one, and room beside it, each [T,H]; `branch` where a block
/// has a post norm or feeds its own norm, `part` where parts have norms.
struct Streams {
  kernels::Tensor residual, normed, branch = {}, part = {};
  kernels::Tensor pair = {};                 ///< [T,2H] the stream | the embedding: as in Plan
  kernels::Tensor inputs = {};               ///< [T,layers*width], as Plan::layer_inputs
  kernels::Tensor all = {}, predicted = {};  ///< [T,n*H], as Plan::altup
  kernels::Tensor router = {};               ///< [T,n] of these, f32
  kernels::Tensor low_rank = {};             ///< [T,rank], of the widest low-rank residual
  kernels::Tensor taps = {};                 ///< [T,n*H], as DraftLayer::taps
  float norm_eps;

  /// One of those side by side in `all` or `predicted`.
  kernels::Tensor stream(const kernels::Tensor& side_by_side, std::int64_t number) const {
    const std::int64_t width = residual.dim(1);
    return side_by_side.columns(number * width, width);
  }
};

/// A norm on the way into an op. Throws for a layer norm, which is an op of its own.
kernels::InputNorm norm_of(Norm kind, const kernels::Tensor& weight, float eps);

/// Returns the factor on the model's embeddings.
float embedding_scale(const Plan& plan, DType activation);
/// The root of a width, rounded as activations are.
float rounded_root(DType activation, std::int32_t width);

/// Runs layers of a plan, those of the model and those that draft, with the memory that parts need
/// while they run. Knows no family and no part.
class LayerRunner {
 public:
  /// Counts what scratch has to hold beside what a part takes.
  using HeadBytes = std::size_t (*)(const Plan& plan, const StepSetting& setting);

  /// All but `limits` outlive it.
  LayerRunner(kernels::Queue& queue, const Plan& plan, const Weights& weights, const Store& store,
              const Geometry& geometry, const StepLimits& limits, HeadBytes head_bytes);

  std::size_t bytes() const;
  /// The same before one is made.
  static std::size_t bytes(const Plan& plan, const StepSetting& setting, HeadBytes head_bytes);

  kernels::Queue& queue() const { return queue_; }
  const Plan& plan() const { return plan_; }
  const Weights& weights() const { return weights_; }
  const Store& store() const { return store_; }
  const Geometry& geometry() const { return geometry_; }
  DType activation() const { return activation_; }
  Scratch& scratch() { return scratch_; }

  Streams take_streams(std::int64_t tokens, bool has_taps);

  /// Finds a part's pages and slots; counts on.
  PartMemory memory_of(const Part& part, Ordinals& ordinals) const;
  /// The first of the draft layers', which come after all others.
  Ordinals draft_ordinals() const;

  /// Makes the call of a part that neither norms its input nor adds to the stream.
  PartCall plain_call(const StepTables& tables, const kernels::Tensor& x, float norm_eps);
  PartCall input_of(const Block& block, const BlockWeights& weights, const StepTables& tables,
                    const Streams& streams);
  void run_block(const Block& block, const BlockWeights& weights, const StepTables& tables,
                 const Streams& streams, Ordinals& ordinals);
  /// The block's first part alone.
  void run_first_part(const Block& block, const BlockWeights& weights, const PartCall& call,
                      Ordinals& ordinals);
  void run_layer(const Layer& layer, const LayerWeights& weights, const StepTables& tables,
                 const Streams& streams, Ordinals& ordinals);
  /// Moves states on by the entries of rings.
  void advance_layer(const Layer& layer, const LayerWeights& weights, Ordinals& ordinals,
                     const PartCall& call);

  /// Norms rows that several parts or a projection read.
  void norm_rows(Norm kind, const kernels::Tensor& weight, const kernels::Tensor& x,
                 const kernels::Tensor& y) const;
  /// f32 [rows, vocab]. Where there is a norm, x holds it afterwards.
  kernels::Tensor head_logits(const kernels::Weight& head, const kernels::Tensor& x,
                              const kernels::InputNorm& norm, float scale, float cap);
  /// Copies rows of plans with taps.
  void copy_rows(const kernels::Tensor& x, const kernels::Tensor& y);

 private:
  void route(const AltUpWeights& weights, const kernels::Tensor& active, const Streams& streams);
  void correct(const AltUpWeights& weights, const Streams& streams);
  void feed_norm(const Block& block, const BlockWeights& weights, const Streams& streams,
                 PartCall& call, Ordinals& ordinals);
  void add_low_rank(const BlockWeights& weights, const Streams& streams);

  kernels::Queue& queue_;
  const Plan& plan_;
  const Weights& weights_;
  const Store& store_;
  const Geometry& geometry_;
  DType activation_;
  Scratch scratch_;
  std::size_t ordered_bytes_;  ///< of the queue's room for ordered rows
  // Ops keep these for themselves from call to call; they are zeros at the start.
  std::vector<kernels::Buffer> workspaces_;  // by kind of part
  kernels::Buffer semaphores_;
  std::vector<std::size_t> pages_of_layer_;  // index in the store of a layer's last part with pages
  kernels::Buffer row_numbers_;              // 0, 1, 2, ..., where taps are copied
};

}  // namespace hyb::models
