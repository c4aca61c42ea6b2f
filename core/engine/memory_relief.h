#pragma once

#include "core/base/error.h"
#include "core/engine/runner.h"
#include "core/memory/memory.h"

namespace hyb {

/// What an engine does where the device lacks memory for a step.
class MemoryRelief {
 public:
  /// After a failed step that released all it had. True: the runner gives way, and the memory of
  /// an eighth of the superblocks, of those that have some, goes back to the device for good; the
  /// next step may run what the failed one was to run. False: the error is no such one, or it came
  /// again before a token was drawn: then that did not help.
  bool relieve(MemoryPool& pool, Runner& runner, const Error& error);

  /// Tokens were drawn.
  void get_on() { is_short_ = false; }

 private:
  bool is_short_ = false;
};

/// Of Error(memory): the same with what the runner holds.
Error with_holdings(const Error& error, const Runner& runner);

}  // namespace hyb
