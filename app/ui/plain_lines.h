#pragma once

#include <optional>
#include <string>

#include "app/ui/input.h"

namespace hyb::app {

/// Lines of stdin without an editor: from a pipe or file each line is an entry as it stands; a
/// person at a simple terminal sees a prompt on stderr and may enter several lines as one.
class PlainLines : public Input {
 public:
  explicit PlainLines(bool is_person) : is_person_(is_person) {}
  InputEvent read(const Asking& asking) override;

 private:
  std::optional<std::string> next_line(const Asking& asking);

  bool is_person_;
  bool has_ended_ = false;
  std::string pending_;       ///< read and not yet given out
  std::size_t searched_ = 0;  ///< of pending_, has no line break
};

}  // namespace hyb::app
