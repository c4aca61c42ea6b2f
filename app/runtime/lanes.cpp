#include "app/runtime/lanes.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "app/machine/device.h"
#include "app/machine/environment.h"
#include "app/machine/version.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/engine/threaded_runner.h"
#include "core/memory/link/threaded_link.h"
#include "core/workers/remote_runner.h"
#include "core/workers/step_server.h"
#include "core/workers/worker_launcher.h"
#include "kernels/card.h"
#include "kernels/thread_pool.h"
#include "models/card_link.h"

namespace hyb::app {
namespace {

[[noreturn]] void refuse_lanes(const std::string& text) { throw Error(ErrorKind::usage, text); }

/// Place of a lane.
struct LanePlace {
  kernels::Device device = kernels::Device::cpu;
  int number = 0;  ///< of a card, or of a memory of the CPU
};

/// The value of --prefill-device or --decode-device; nullopt: it was not given.
std::optional<LanePlace> place_of(const char* option, const std::string& text, bool is_prefill) {
  if (text.empty()) return std::nullopt;
  if (text == "cpu") return LanePlace{};
  if (text == "cpu:1" && is_prefill) return LanePlace{.number = 1};  // of tests: not in the help
  constexpr std::string_view card = "cuda";
  if (text.starts_with(card)) {
    const auto number = parse_number<int>(std::string_view(text).substr(card.size()));
    if (number.value_or(-1) >= 0) {
      return LanePlace{.device = kernels::Device::cuda, .number = *number};
    }
  }
  refuse_lanes(fmt::format("{} {}: is none of cpu, cuda0, cuda1", option, text));
}

void check_off(const LaneFlags& flags) {
  if (flags.prefill_threads > 0) refuse_lanes("--prefill-threads: goes with --disaggregate");
  if (flags.decode_threads > 0) refuse_lanes("--decode-threads: goes with --disaggregate");
  if (!flags.prefill_device.empty()) refuse_lanes("--prefill-device: goes with --disaggregate");
  if (!flags.decode_device.empty()) refuse_lanes("--decode-device: goes with --disaggregate");
}

void check_threads(const ModelOptions& options) {
  const LaneFlags& flags = options.lanes;
  const int both = flags.prefill_threads + flags.decode_threads;
  const bool are_given = flags.prefill_threads > 0 && flags.decode_threads > 0;
  if (options.threads > 0 && (are_given ? both != options.threads : both >= options.threads) &&
      both > 0) {
    refuse_lanes(
        fmt::format("--threads {}: is for both lanes together, --prefill-threads and "
                    "--decode-threads say otherwise; leave it out",
                    options.threads));
  }
}

TwoLanes lanes_of_cpu(const ModelOptions& options, bool share_memory) {
  const LaneFlags& flags = options.lanes;
  check_threads(options);
  if (options.pools.strict_vmm && share_memory) {
    refuse_lanes("--strict-vmm: memory that two lanes share does not fault; leave one of them out");
  }
  const int all = options.threads > 0 ? options.threads : kernels::usable_cpus().count;
  const auto rest = [&](int taken) { return std::max(1, all - taken); };
  TwoLanes lanes = {.device = kernels::Device::cpu,
                    .decode = {.threads = flags.decode_threads},
                    .prefill = {.threads = flags.prefill_threads},
                    .share_memory = share_memory};
  if (lanes.decode.threads == 0) {
    lanes.decode.threads = rest(lanes.prefill.threads > 0 ? lanes.prefill.threads : all / 2);
  }
  if (lanes.prefill.threads == 0) lanes.prefill.threads = rest(lanes.decode.threads);
  return lanes;
}

/// True if both cards agree in what decides how kernels split sums: otherwise answers would depend
/// on which card ran a prompt.
bool are_alike(int card, int other) {
  const kernels::Card first = kernels::card(card), second = kernels::card(other);
  return first.major == second.major && first.minor == second.minor &&
         first.processors == second.processors;
}

TwoLanes lanes_of_cards(const ModelOptions& options, const std::optional<LanePlace>& prefill,
                        const std::optional<LanePlace>& decode) {
  const LaneFlags& flags = options.lanes;
  if (flags.prefill_threads > 0 || flags.decode_threads > 0) {
    refuse_lanes("--prefill-threads, --decode-threads: divide the CPU; lanes are on a card here");
  }
  const int count = kernels::card_count();
  const auto checked = [&](const char* option, const LanePlace& place) {
    if (place.number < count) return place.number;
    refuse_lanes(
        fmt::format("{} cuda{}: this machine has {}", option, place.number,
                    count == 1 ? "one card, cuda0" : fmt::format("cuda0 to cuda{}", count - 1)));
  };
  const int threads = options.threads > 0 ? options.threads : kernels::usable_cpus().count;
  TwoLanes lanes = {.device = kernels::Device::cuda,
                    .decode = {.threads = threads},
                    .prefill = {.threads = threads},
                    .share_memory = true};
  const auto beside = [&](int card) {
    const int other = card == 0 ? 1 : 0;
    return other < count && are_alike(card, other) ? other : card;
  };
  if (decode) lanes.decode.card = checked("--decode-device", *decode);
  lanes.prefill.card = prefill ? checked("--prefill-device", *prefill) : beside(lanes.decode.card);
  if (prefill && !decode) lanes.decode.card = beside(lanes.prefill.card);
  lanes.share_memory = !lanes.have_two_cards();
  if (!lanes.share_memory && !are_alike(lanes.decode.card, lanes.prefill.card)) {
    refuse_lanes(
        fmt::format("--disaggregate: cuda{} and cuda{} are unlike, so that answers would depend "
                    "on which one ran a prompt; use one of them for both lanes",
                    lanes.decode.card, lanes.prefill.card));
  }
  return lanes;
}

}  // namespace

std::string TwoLanes::text() const {
  if (device == kernels::Device::cpu) {
    return fmt::format("{} + {}", decode.threads, prefill.threads);
  }
  return fmt::format("cuda{} + cuda{}", decode.card, prefill.card);
}

std::optional<TwoLanes> lanes_of(const ModelOptions& options, kernels::Device device) {
  const LaneFlags& flags = options.lanes;
  if (!flags.is_on) {
    check_off(flags);
    return std::nullopt;
  }
  const auto prefill = place_of("--prefill-device", flags.prefill_device, true);
  const auto decode = place_of("--decode-device", flags.decode_device, false);
  for (const auto& [option, place] :
       {std::pair("--prefill-device", &prefill), std::pair("--decode-device", &decode)}) {
    if (!*place || (*place)->device == device) continue;
    refuse_lanes(
        device == kernels::Device::cpu
            ? fmt::format("{}: a card, where --device is the CPU; add --device cuda", option)
            : fmt::format("{} cpu: --device is a card, and both lanes are on one kind of device; "
                          "add --device cpu",
                          option));
  }
  if (device == kernels::Device::cuda) return lanes_of_cards(options, prefill, decode);
  return lanes_of_cpu(options, !prefill || prefill->number == 0);
}

LaneFlags lanes_to_compare(const ModelOptions& options) {
  LaneFlags flags = options.lanes;
  flags.is_on = true;
  const bool are_given = !flags.prefill_device.empty() || !flags.decode_device.empty();
  if (!are_given && device_of(options.device) == kernels::Device::cuda) {
    flags.prefill_device = flags.decode_device = "cuda0";
  }
  return flags;
}

kernels::Queue decode_queue(const TwoLanes& lanes) {
  return kernels::Queue(kernels::Device::cpu, {.threads = lanes.decode.threads,
                                               .neighbours = {.after = lanes.prefill.threads}});
}

kernels::Queue undivided_queue(const TwoLanes& lanes) {
  return kernels::Queue(kernels::Device::cpu, {.threads = lanes.threads()});
}

kernels::Queue prefill_queue(const TwoLanes& lanes, bool batch_invariant) {
  return kernels::Queue(kernels::Device::cuda, {.threads = lanes.prefill.threads,
                                                .batch_invariant = batch_invariant,
                                                .card = lanes.prefill.card});
}

namespace {

kernels::SuperblockMapOptions mapping_on(const TwoLanes& lanes,
                                         kernels::SuperblockMapOptions mapping, int card,
                                         int other) {
  if (lanes.device == kernels::Device::cpu) return mapping;
  mapping.card = card;
  if (card != other && kernels::are_peers(card, other)) mapping.peers = {other};
  return mapping;
}

}  // namespace

kernels::SuperblockMapOptions mapping_of_decode(const TwoLanes& lanes,
                                                kernels::SuperblockMapOptions mapping) {
  return mapping_on(lanes, std::move(mapping), lanes.decode.card, lanes.prefill.card);
}

kernels::SuperblockMapOptions mapping_of_prefill(const TwoLanes& lanes,
                                                 kernels::SuperblockMapOptions mapping) {
  return mapping_on(lanes, std::move(mapping), lanes.prefill.card, lanes.decode.card);
}

namespace {

std::string layout_text(const MemoryLayout& layout) {
  std::string text =
      fmt::format("{} superblocks of {} bytes", layout.superblocks, layout.superblock_bytes);
  for (std::int32_t view = 0; view < layout.views(); ++view) {
    const ViewId id{view};
    text += fmt::format(", {} of {}", layout.units_per_superblock(id), layout.unit_bytes(id));
  }
  return text;
}

/// Names what must be the same for answers to be.
WorkerIdentity identity_of(const models::Model& model, const std::string& name,
                           const Capacity& capacity, const kernels::Queue& queue) {
  const models::Geometry& geometry = model.geometry;
  return {{"build", version_text()},
          {"model", name},
          {"weights", std::to_string(model.weights.bytes())},
          {"memory layout", layout_text(capacity.memory)},
          {"step", fmt::format("{} tokens, {} rows", capacity.step_tokens, capacity.sequences_max)},
          {"activations", std::string(name_of(geometry.load.activation))},
          {"keys and values", std::string(name_of(geometry.kv_dtype))},
          {"states", std::string(name_of(geometry.state_dtype))},
          {"page size", std::to_string(geometry.page_tokens)},
          {"instruction set", name_of(queue.isa())}};
}

kernels::Queue prefill_queue_of_cpu(const TwoLanes& lanes) {
  return kernels::Queue(kernels::Device::cpu, {.threads = lanes.prefill.threads,
                                               .neighbours = {.before = lanes.decode.threads}});
}

struct PrefillWorker {
  PrefillWorker(const TwoLanes& lanes, const models::ModelRunner& first, const models::Model& model,
                const std::string& name)
      : queue(prefill_queue_of_cpu(lanes)),
        own(queue, first),
        says(identity_of(model, name, own.capacity(), queue)) {}

  Runner& runner() { return own; }
  const WorkerIdentity& identity() const { return says; }

  kernels::Queue queue;
  models::ModelRunner own;
  WorkerIdentity says;
};

class WorkerLane final : public PrefillLane {
 public:
  WorkerLane(const TwoLanes& lanes, const models::ModelRunner& first, const models::Model& model,
             const std::string& name)
      : launcher_([lanes, &first, &model, name](int socket) {
          serve_steps(socket,
                      [&] { return std::make_unique<PrefillWorker>(lanes, first, model, name); });
        }),
        runner_([this] { return launcher_.start(); }, first.capacity(),
                identity_of(model, name, first.capacity(), first.queue())) {}

  Runner& runner() override { return runner_; }

 private:
  WorkerLauncher launcher_;
  RemoteRunner runner_;
};

class StreamLane final : public PrefillLane {
 public:
  StreamLane(const TwoLanes& lanes, const models::ModelRunner& answers)
      : queue_(prefill_queue(lanes, answers.queue().batch_invariant())), runner_(queue_, answers) {}

  Runner& runner() override { return runner_; }

 private:
  kernels::Queue queue_;
  models::ModelRunner runner_;
};

class LaneWithMemory final : public PrefillLane {
 public:
  LaneWithMemory(const TwoLanes& lanes, const models::Model& model,
                 const models::RunnerOptions& options, models::ModelRunner& answers)
      : queue_(prefill_queue_of_cpu(lanes)),
        runner_(queue_, model.plan, model.weights, model.geometry, options),
        threaded_(runner_),
        link_({.bytes = &runner_, .layout = options.memory.layout},
              {.bytes = &answers, .layout = options.memory.layout}) {}

  Runner& runner() override { return threaded_; }
  UnitLink* link() override { return &link_; }

 private:
  kernels::Queue queue_;
  models::ModelRunner runner_;
  ThreadedRunner threaded_;
  ThreadedLink link_;
};

class CardLane final : public PrefillLane {
 public:
  CardLane(kernels::Queue& queue, const models::Model& model, const models::RunnerOptions& options,
           models::ModelRunner& answers)
      : runner_(queue, model.plan, model.weights, model.geometry, options),
        link_(runner_, answers, !options.mapping.peers.empty()) {}

  Runner& runner() override { return runner_; }
  UnitLink* link() override { return &link_; }

 private:
  models::ModelRunner runner_;
  models::CardLink link_;
};

}  // namespace

std::unique_ptr<PrefillLane> make_sharing_lane(const TwoLanes& lanes, models::ModelRunner& answers,
                                               const models::Model& model,
                                               const std::string& name) {
  if (lanes.device == kernels::Device::cuda) return std::make_unique<StreamLane>(lanes, answers);
  return std::make_unique<WorkerLane>(lanes, answers, model, name);
}

std::unique_ptr<PrefillLane> make_lane_with_memory(const TwoLanes& lanes,
                                                   const models::Model& model,
                                                   const models::RunnerOptions& options,
                                                   models::ModelRunner& answers) {
  return std::make_unique<LaneWithMemory>(lanes, model, options, answers);
}

std::unique_ptr<PrefillLane> make_lane_on_card(kernels::Queue& queue, const models::Model& model,
                                               const models::RunnerOptions& options,
                                               models::ModelRunner& answers) {
  return std::make_unique<CardLane>(queue, model, options, answers);
}

}  // namespace hyb::app
