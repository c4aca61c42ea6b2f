#include "tests/sim/misuse.h"

namespace hyb::sim {

const char* name_of(Misuse misuse) {
  static const char* const names[] = {"none",
                                      "snapshot visible before its step is done",
                                      "key cut at the lookup",
                                      "reference leaked",
                                      "page owned twice",
                                      "window page freed too early",
                                      "tail of a key forgotten",
                                      "whole path refreshed"};
  return names[static_cast<int>(misuse)];
}

}  // namespace hyb::sim
