#include "app/lanes.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "app/device.h"
#include "app/environment.h"
#include "app/version.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/engine/threaded_runner.h"
#include "core/memory/link/threaded_link.h"
#include "core/workers/remote_runner.h"
#include "core/workers/step_server.h"
#include "core/workers/worker_launcher.h"
#include "kernels/thread_pool.h"

namespace hyb::app {
namespace {

void check(const ModelOptions& options) {
  const auto refuse = [](const std::string& text) { throw Error(ErrorKind::usage, text); };
  const LaneFlags& flags = options.lanes;
  if (!flags.is_on) {
    if (flags.prefill_threads > 0) refuse("--prefill-threads: goes with --disaggregate");
    if (flags.decode_threads > 0) refuse("--decode-threads: goes with --disaggregate");
    if (!flags.prefill_device.empty()) refuse("--prefill-device: goes with --disaggregate");
    if (!flags.decode_device.empty()) refuse("--decode-device: goes with --disaggregate");
    return;
  }
  if (!flags.decode_device.empty() && flags.decode_device != "cpu") {
    refuse(
        fmt::format("--decode-device {}: lanes are threads of the CPU: cpu", flags.decode_device));
  }
  if (!flags.prefill_device.empty() && flags.prefill_device != "cpu" &&
      flags.prefill_device != "cpu:1") {
    refuse(
        fmt::format("--prefill-device {}: lanes are threads of the CPU: cpu, or cpu:1 for memory "
                    "of its own",
                    flags.prefill_device));
  }
  if (device_of(options.device) != kernels::Device::cpu) {
    refuse("--disaggregate: lanes are threads of the CPU: add --device cpu, or leave it out");
  }
  if (options.pools.strict_vmm && flags.memories() == 1) {
    refuse("--strict-vmm: memory that two lanes share does not fault; leave one of them out");
  }
  const int both = flags.prefill_threads + flags.decode_threads;
  const bool are_given = flags.prefill_threads > 0 && flags.decode_threads > 0;
  if (options.threads > 0 && (are_given ? both != options.threads : both >= options.threads) &&
      both > 0) {
    refuse(
        fmt::format("--threads {}: is for both lanes together, --prefill-threads and "
                    "--decode-threads say otherwise; leave it out",
                    options.threads));
  }
}

}  // namespace

std::optional<LaneThreads> lane_threads_of(const ModelOptions& options) {
  check(options);
  const LaneFlags& flags = options.lanes;
  if (!flags.is_on) return std::nullopt;
  const int all = options.threads > 0 ? options.threads : kernels::usable_cpus().count;
  const auto rest = [&](int taken) { return std::max(1, all - taken); };
  if (flags.prefill_threads > 0) {
    const int decode =
        flags.decode_threads > 0 ? flags.decode_threads : rest(flags.prefill_threads);
    return LaneThreads{.decode = decode, .prefill = flags.prefill_threads};
  }
  const int decode = flags.decode_threads > 0 ? flags.decode_threads : rest(all / 2);
  return LaneThreads{.decode = decode, .prefill = rest(decode)};
}

void check_lanes(const ModelOptions& options, bool has_head) {
  if (!options.lanes.is_on || has_head || options.speculation.kind() != "draft") return;
  throw Error(ErrorKind::usage,
              "--disaggregate: a draft model has no threads of its own beside both lanes; use "
              "--spec ngram or mtp, or leave one of them out");
}

int threads_of(const ModelOptions& options) {
  const std::optional<LaneThreads> lanes = lane_threads_of(options);
  return lanes ? lanes->decode + lanes->prefill : options.threads;
}

kernels::Queue decode_queue(const LaneThreads& threads) {
  return kernels::Queue(kernels::Device::cpu,
                        {.threads = threads.decode, .neighbours = {.after = threads.prefill}});
}

kernels::Queue undivided_queue(const LaneThreads& threads) {
  return kernels::Queue(kernels::Device::cpu, {.threads = threads.decode + threads.prefill});
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

/// Of what must be the same for answers to be.
WorkerIdentity identity_of(const models::Model& model, const std::string& name,
                           const Capacity& capacity, const kernels::Queue& queue) {
  const models::Geometry& geometry = model.geometry;
  return {{"build", version_text()},
          {"model", name},
          {"weights", std::to_string(model.weights.bytes())},
          {"memory layout", layout_text(capacity.memory)},
          {"step", fmt::format("{} tokens, {} rows", capacity.step_tokens, capacity.step_rows)},
          {"activations", std::string(name_of(geometry.activation_dtype))},
          {"keys and values", std::string(name_of(geometry.kv_dtype))},
          {"states", std::string(name_of(geometry.state_dtype))},
          {"page size", std::to_string(geometry.page_tokens)},
          {"instruction set", name_of(queue.isa())}};
}

kernels::Queue prefill_queue(const LaneThreads& threads) {
  return kernels::Queue(kernels::Device::cpu,
                        {.threads = threads.prefill, .neighbours = {.before = threads.decode}});
}

/// What a worker has.
struct PrefillWorker {
  PrefillWorker(const LaneThreads& threads, const models::ModelRunner& first,
                const models::Model& model, const std::string& name)
      : queue(prefill_queue(threads)),
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
  WorkerLane(const LaneThreads& threads, const models::ModelRunner& first,
             const models::Model& model, const std::string& name)
      : launcher_([threads, &first, &model, name](int socket) {
          serve_steps(socket,
                      [&] { return std::make_unique<PrefillWorker>(threads, first, model, name); });
        }),
        runner_([this] { return launcher_.start(); }, first.capacity(),
                identity_of(model, name, first.capacity(), first.queue())) {}

  Runner& runner() override { return runner_; }

 private:
  WorkerLauncher launcher_;
  RemoteRunner runner_;
};

class LaneWithMemory final : public PrefillLane {
 public:
  LaneWithMemory(const LaneThreads& threads, const models::Model& model,
                 const models::RunnerOptions& options, models::ModelRunner& answers)
      : queue_(prefill_queue(threads)),
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

}  // namespace

std::unique_ptr<PrefillLane> make_worker_lane(const LaneThreads& threads,
                                              const models::ModelRunner& first,
                                              const models::Model& model, const std::string& name) {
  return std::make_unique<WorkerLane>(threads, first, model, name);
}

std::unique_ptr<PrefillLane> make_lane_with_memory(const LaneThreads& threads,
                                                   const models::Model& model,
                                                   const models::RunnerOptions& options,
                                                   models::ModelRunner& answers) {
  return std::make_unique<LaneWithMemory>(threads, model, options, answers);
}

}  // namespace hyb::app
