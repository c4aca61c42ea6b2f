#include "app/lanes.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "app/device.h"
#include "core/base/error.h"
#include "kernels/thread_pool.h"

namespace hyb::app {
namespace {

void check(const ModelOptions& options) {
  const auto refuse = [](const std::string& text) { throw Error(ErrorKind::usage, text); };
  const LaneFlags& flags = options.lanes;
  if (!flags.is_on) {
    if (flags.prefill_threads > 0) refuse("--prefill-threads: goes with --disaggregate");
    if (flags.decode_threads > 0) refuse("--decode-threads: goes with --disaggregate");
    return;
  }
  if (device_of(options.device) != kernels::Device::cpu) {
    refuse("--disaggregate: lanes are threads of the CPU: add --device cpu, or leave it out");
  }
  if (options.speculation.kind() == "draft") {
    refuse(
        "--disaggregate: a draft model has no threads of its own beside both lanes; use --spec "
        "ngram or mtp, or leave one of them out");
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

PrefillLane::PrefillLane(const LaneThreads& threads, const models::ModelRunner& first)
    : queue_(kernels::Device::cpu,
             {.threads = threads.prefill, .neighbours = {.before = threads.decode}}),
      runner_(queue_, first),
      threaded_(runner_) {}

}  // namespace hyb::app
