#include "core/engine/runner.h"

#include "core/base/error.h"

namespace hyb {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::runtime, "runner: its steps do not run beside the host");
}

}  // namespace

void Runner::launch(const Step&) { refuse(); }
StepResult Runner::wait() { refuse(); }
void Runner::prepare(const Step&) { refuse(); }
void Runner::launch_prepared() { refuse(); }

SampledToken Runner::draw(std::span<const float>, const SampleRow&) {
  throw Error(ErrorKind::runtime, "runner: it draws from no logits but those of its steps");
}

bool Runner::back(SuperblockId, bool) { return true; }

}  // namespace hyb
