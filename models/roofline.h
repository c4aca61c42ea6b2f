#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/memory/prefix/prefill_cost.h"
#include "models/geometry.h"
#include "models/plan.h"

namespace hyb::models {

/// The least that a step moves and computes.
struct Work {
  double bytes = 0;
  double flops = 0;  ///< a multiplication and an addition are two

  Work& operator+=(const Work& more);
};

/// A device moves and computes this much at most; zeros: not known.
struct DeviceRates {
  double bytes_per_s = 0, flops_per_s = 0;

  bool is_known() const { return bytes_per_s > 0 && flops_per_s > 0; }
};

/// One step of equal spans.
struct StepShape {
  std::int64_t sequences = 1;
  std::int64_t tokens = 1;    ///< of each sequence
  std::int64_t position = 0;  ///< of their first token
  std::int64_t rows = 1;      ///< of logits, of each sequence
};

/// Counts the work of a step from the plan alone: what a benchmark compares its figures with.
/// Nothing that a route moves or computes beyond it counts.
///
/// Bytes: weights touched, once (attention, mixers, feed-forwards, norms, and the head when logits
/// are wanted; not the lookup in the embedding) + per sequence: recurrent matrices twice (read and
/// written), convolution windows once, keys and values of the positions before the step that its
/// first token sees, once for each layer that reads them, its own or another's. Of E routed
/// experts, k of them active, E (1 - (1 - k/E)^tokens) are touched: the average of uniform routing.
///
/// FLOPs: 2 x active parameters per token (the head per row of logits) + causal attention, 4 heads
/// head_dim (tokens position + tokens^2 / 2) per layer, less where windows end and chunks begin, +
/// the recurrences, which run in chunks: see PartWork, and work() of each part.
class Roofline {
 public:
  /// Weights count as they are packed: with the activation type's size, or with that of their codes
  /// and scales. The plan and the geometry may go afterwards.
  Roofline(const Plan& plan, const Geometry& geometry);

  Work step(const StepShape& shape) const { return step({&shape, 1}); }
  /// A step of unequal spans: weights are touched once by all of them.
  Work step(std::span<const StepShape> shapes) const;

  /// FLOPs of one sequence, without logits; exact where chunks of recurrent layers are whole.
  PrefillCost prefill() const;

  /// Prompt tokens in a step from which on the bytes of the weights hardly matter: reading those
  /// that the step touches takes at most a tenth of the time of reading and computing. A power of
  /// two from chunk_min to chunk_max.
  std::int32_t chunk_tokens(const DeviceRates& rates) const;
  /// The most prompt tokens, again such a power of two, whose step takes at most `seconds` of
  /// reading weights and computing, one after the other; chunk_min where that is longer.
  std::int32_t chunk_tokens_within(const DeviceRates& rates, double seconds) const;
  static constexpr std::int32_t chunk_min = 512, chunk_max = 32768;

  /// Parameters that one token goes through, the head left out.
  std::int64_t active_parameters() const { return fixed_parameters_ + routed_active_; }
  std::int64_t head_parameters() const { return head_parameters_; }

 private:
  /// The experts of one layer.
  struct Experts {
    double parameters = 0;  ///< of all of them
    std::int32_t experts;
    std::int32_t active;
  };

  void add_part(const auto& part, std::int64_t width);
  void add_reads(const Plan& plan, const Geometry& geometry);
  void count_published(const LoadOptions& load);
  double experts_touched(double tokens) const;
  struct Seconds {
    double reading, computing;
  };
  Seconds chunk_seconds(const DeviceRates& rates, std::int32_t tokens) const;
  Work spans(const StepShape& shape) const;

  double weight_bytes_, head_bytes_, expert_bytes_;  ///< of one parameter
  std::int64_t fixed_parameters_ = 0, routed_active_ = 0, head_parameters_;
  std::int64_t reread_parameters_ = 0;  ///< of the fixed ones, those of blocks read again
  std::vector<Experts> experts_;        ///< one entry per layer that has some

  /// A token sees this much of the positions before it; 0: all.
  struct Sight {
    std::int32_t window = 0, chunk = 0;
    auto operator<=>(const Sight&) const = default;

    double positions(double own) const;
    /// Pairs of a query and a position that it sees, of `length` queries from `position` on.
    double pairs(double position, double length) const;
  };
  static Sight sight_of(const PartWork& work) {
    return {.window = work.attention_window, .chunk = work.attention_chunk};
  }

  /// Attention layers of one sight.
  struct AttentionWork {
    double bytes_per_token = 0;  ///< of keys and values
    double width = 0;            ///< sum of heads x head_dim
  };

  double state_bytes_ = 0, window_bytes_ = 0;
  std::map<Sight, AttentionWork> attention_;

  double state_flops_ = 0;                      ///< of the recurrences, per token
  std::map<std::int64_t, double> chunk_flops_;  ///< by chunk: per token and token of its chunk
};

}  // namespace hyb::models
