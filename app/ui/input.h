#pragma once

#include <cstdint>

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

/// Where a person's or a script's entries come from.
class Input {
 public:
  virtual ~Input() = default;

  /// Waits for the next one.
  virtual InputEvent read() = 0;
};

}  // namespace hyb::app
