#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "app/runtime/run_settings.h"
#include "core/engine/draft_tree.h"
#include "kernels/arena/superblock_map.h"
#include "kernels/device.h"
#include "models/model.h"
#include "models/roofline.h"
#include "models/runner.h"

namespace hyb::app {

class ProgressLine;

/// Number of sequences and sizes of steps that a command wants.
struct SessionShape {
  std::int32_t sequences_max = 1;  ///< run at once
  /// Prompt tokens of one sequence in one step. 0: MemoryPlan's rule.
  std::int32_t chunk_tokens = 0;
  std::int32_t answer_tokens = 0;  ///< at most, of all requests; 0: not known
  bool expects_more = false;       ///< requests will follow others: memory is prepared for them
  /// True if the total time counts, and not how long an answer waits for a prompt.
  bool prefers_throughput = false;
  std::size_t host_tier_bytes = 0;   ///< all that a host tier may take, its pinned memory included
  std::int32_t drafts_room = 0;      ///< most of a sequence in a step
  TreeLimits tree = {};              ///< of these drafts
  ProgressLine* progress = nullptr;  ///< shows how much of the weights is loaded; outlives open()
};

/// Division of the budget, in bytes.
struct MemoryPlan {
  std::size_t budget = 0;
  std::size_t weights = 0;
  std::size_t workspace = 0;  ///< of both lanes, where prompts have one of their own
  std::size_t library = 0;    ///< a card's cuBLASLt, where it is there
  std::size_t process = 0;    ///< code, texts and tables, on the CPU
  std::size_t pinned = 0;     ///< of the machine's memory, outside a card's budget
  /// For snapshots on their way to a host tier, of workspace and pinned, and back, of pinned.
  kernels::SideCopyRoom side_copies = {};
  models::ModelMemoryLayout pools{};
  kernels::SuperblockMapOptions mapping{};
  /// EngineOptions'. Unless the shape says otherwise, 512 tokens on the CPU and with activations of
  /// f32. On a card, what Roofline::chunk_tokens says of its rates, halved, down to 512, until the
  /// workspace takes an eighth of what the weights leave; and where answers go on, as much of it as
  /// the card reads and computes in mixed_seconds.
  std::int32_t chunk_tokens = 0, mixed_tokens = 0;
  static constexpr double mixed_seconds = 0.1;
  std::int32_t length_max = 0;  ///< most tokens of one sequence
  std::int32_t sequences = 0;   ///< that can run at once at length_max
  int memories = 1;             ///< pools of this size: 2 where prompts have one of their own
  int cards = 1;                ///< each of which has all of this, where the model is on cards

  std::size_t pool_bytes() const {
    return pools.layout.bytes() * static_cast<std::size_t>(memories);
  }
  std::size_t total() const { return weights + workspace + library + process + pool_bytes(); }
};

/// "8192 tokens, 4096 where answers go on".
std::string chunk_text(const MemoryPlan& memory);

/// Bytes that may be held on a device, how much of them pages and slots may take, and how these
/// share it.
struct Budget {
  Budget(std::size_t all, std::size_t pools_max = unlimited) : bytes(all), pool_bytes(pools_max) {}
  static constexpr std::size_t unlimited = ~std::size_t{0};
  std::size_t bytes, pool_bytes;
  std::size_t addresses = unlimited;  ///< that ulimit -v leaves; every view of the pools takes some
  std::size_t draft_model = 0;        ///< beside bytes, what a model that drafts takes of --memory
  std::size_t library = 0;            ///< of bytes, what a queue takes from its start
  /// Other bytes of the process: code, texts, tables. They take at most half of what is left for
  /// pools, so that pools always have room.
  std::size_t process = 0;
  std::size_t weights = 0;  ///< of bytes, what they take; 0: not loaded yet, an estimate counts
  kernels::Device device = kernels::Device::cpu;
  models::DeviceRates rates{};  ///< a card's
  kernels::SuperblockMapOptions mapping{};
  bool packed_snapshots = false;  ///< the pools have room for int8 snapshots
  std::int32_t drafts_room = 0;   ///< most of a sequence in a step, of --spec
  TreeLimits tree = {};           ///< of these
  int prefill_threads = 0;  ///< of a lane of their own for prompts, beside the others; 0: none
  int memories = 1;         ///< pools of equal size that pool_bytes are for
  int cards = 1;            ///< alike, each of which may hold as much
  /// Most calls of a card's driver that creating and mapping pools may take.
  std::size_t driver_calls_max = unlimited;
};

/// Returns the budget of the settings, less the share of a draft model.
Budget budget_of(const RunSettings& settings);

/// Divides the budget: weights, workspace, and pools of all that is left. Throws Error(memory) with
/// the numbers when not even one short sequence fits.
MemoryPlan plan_memory(const models::Plan& plan, const models::Geometry& geometry,
                       const Budget& budget, std::int32_t context, int threads,
                       const SessionShape& shape);

/// MemoryPlan::chunk_tokens of one sequence, for commands without a session.
std::int32_t chunk_tokens_of(const models::Plan& plan, const models::Geometry& geometry,
                             const Budget& budget, int threads);

/// Returns the options of a runner with these pools; every id of the vocabulary may be sampled.
models::RunnerOptions runner_options(const models::Plan& plan, const MemoryPlan& memory,
                                     const SessionShape& shape);

/// Division of a host tier's bytes. The card sets aside as many bytes as `copies`.
struct HostTierParts {
  std::size_t copies, reads, index, snapshots;
};

/// Throws Error(usage) where too little is left. `disk_bytes`: of a disk tier after it.
HostTierParts host_tier_parts(std::size_t bytes, const models::Geometry& geometry,
                              std::size_t disk_bytes = 0);

}  // namespace hyb::app
