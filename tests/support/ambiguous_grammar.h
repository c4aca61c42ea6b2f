#pragma once

#include <string>

namespace hyb::testing {

/// Of texts that begin with ten a's, after which more rules begin at once than can be followed.
inline std::string ambiguous_grammar() {
  std::string text = "root ::= \"aaaaaaaaaa\" any\nany ::= r0";
  constexpr int rules = 2100;
  for (int i = 1; i < rules; ++i) text += " | r" + std::to_string(i);
  text += "\n";
  for (int i = 0; i < rules; ++i) {
    const std::string number = std::to_string(i);
    text += "r" + number + " ::= \"a\" r" + number + " \"b\" | \"" + number + ";\"\n";
  }
  return text;
}

}  // namespace hyb::testing
