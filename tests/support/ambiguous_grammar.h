#pragma once

#include <string>

namespace hyb::testing {

/// Of texts that begin with more a's than can be followed: each may have two ends.
inline std::string ambiguous_grammar() {
  std::string text = "root ::= s0\n";
  for (int i = 0; i < 14; ++i) {
    const std::string next = " \"a\" s" + std::to_string(i + 1);
    text += "s" + std::to_string(i) + " ::=" + next + " \"b\" |" + next + " \"c\"\n";
  }
  return text + "s14 ::= \"a\"\n";
}

}  // namespace hyb::testing
