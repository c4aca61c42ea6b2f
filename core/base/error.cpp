#include "core/base/error.h"

namespace hyb {

void require(bool condition, std::string_view rule, std::source_location place) {
  if (condition) return;
  throw Error(ErrorKind::runtime, "broken rule: " + std::string(rule) + " (" + place.file_name() +
                                      ":" + std::to_string(place.line()) + ")");
}

}  // namespace hyb
