#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "app/ui/entry.h"

namespace hyb::app {

struct InputEvent {
  enum class Kind : std::uint8_t {
    entered,      ///< entry is what was entered
    interrupted,  ///< Ctrl-C with nothing entered
    ended,        ///< end of input, or the process was asked to end
  };
  Kind kind;
  Entry entry = {};
};

/// How an entry is asked for. An editor heeds all of it, plain lines the work only.
struct Asking {
  std::string prompt = "> ";
  std::string draft = {};  ///< what stands there to begin with
  /// Work for the time in which a person types or does nothing, a small piece a call: an entry,
  /// with plain lines a key, waits for the piece that runs. It may be done on another thread.
  /// False: nothing is left to do.
  std::function<bool()> work = {};
};

/// Where a person's or a script's entries come from.
class Input {
 public:
  virtual ~Input() = default;

  /// Waits for the next one.
  virtual InputEvent read(const Asking& asking) = 0;
};

}  // namespace hyb::app
