#include "core/engine/runner.h"

#include "core/base/error.h"

namespace hyb {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::runtime, "runner: its steps are not asynchronous");
}

}  // namespace

void Runner::launch(const Step&) { refuse(); }
StepResult Runner::wait() { refuse(); }
void Runner::prepare(const Step&) { refuse(); }
void Runner::launch_prepared() { refuse(); }

SampledToken Runner::draw(std::span<const float>, const SampleRow&) {
  throw Error(ErrorKind::runtime, "runner: it draws from the logits of its steps alone");
}

bool Runner::commit(SuperblockId, bool) { return true; }

}  // namespace hyb
