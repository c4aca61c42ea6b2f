#include "core/engine/runner.h"

namespace hyb {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::runtime, "runner: its steps are not asynchronous");
}

}  // namespace

void Runner::launch(const Step&) { refuse(); }
StepResult Runner::wait() { refuse(); }
bool Runner::is_done() { refuse(); }
void Runner::prepare(const Step&) { refuse(); }
void Runner::launch_prepared() { refuse(); }

std::vector<std::vector<SampledToken>> Runner::draft(const Step&) {
  throw Error(ErrorKind::runtime, "runner: its model has no part that drafts");
}

bool Runner::commit(SuperblockId, bool) { return true; }

}  // namespace hyb
