#pragma once

#include <cstdint>

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

inline constexpr std::int64_t route_experts_max = 4096;
inline constexpr std::int64_t route_groups_max = 32;

/// Holds what a router makes of its logits (models' kinds: the product of these fields).
struct Routing {
  enum class Score : std::uint8_t {
    softmax_of_selected,  ///< selected by logit; softmax over the selected k
    softmax,              ///< softmax over all E
    sigmoid,
  };
  Score score = Score::softmax_of_selected;
  bool renormalize = false;  ///< weights / (their sum + epsilon); not for softmax_of_selected
  float renormalize_epsilon = 0.0F;  ///< 1e-20 or 1e-6 in some families
  float scale = 1.0F;                ///< multiplies every weight at the end
  std::int64_t groups = 1;           ///< of E/groups neighbours each
  std::int64_t active_groups = 1;    ///< experts of the others are not chosen
};

/// Checks what a routing's contract says of E experts, of which `active` are chosen: Error(runtime)
/// in the name of `op` where it is broken.
void check_routing(const char* op, const Routing& routing, std::int64_t experts,
                   std::int64_t active);

/// Picks k experts for every token and weighs them.
///
///   chosen[t,:]  = the k largest of score[t,e] + bias[e], largest first, ties to the lower e
///   weights[t,j] = score[t, chosen[t,j]], without the bias, renormalized and scaled, then times
///                  expert_scale[chosen[t,j]]
///
/// With groups a group counts as much as its two best score + bias together, and only experts of
/// the active_groups best, ties to the lower group, are chosen.
///
/// shapes  logits [T,E]   bias, expert_scale [E] or empty
///         chosen, weights [T,k], 1 <= k <= E <= 4096
///         groups: 1, or up to 32 that divide E into 2 or more each, with k experts in the active
/// types   logits: f32 or bf16   bias, expert_scale, weights: f32   chosen: i32
/// numbers all in f32. A NaN among the scores or biases of a token counts as -infinity when its
///         experts are chosen, and makes all its weights NaN: it must not vanish in the choice.
/// writes  chosen and weights
struct MoeRoute {
  Tensor logits, bias, chosen, weights;
  Routing routing;
  Tensor expert_scale = {};
};

void moe_route(Queue& queue, const MoeRoute& op);

}  // namespace hyb::kernels
