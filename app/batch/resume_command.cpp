#include "app/batch/resume_command.h"

#include <fstream>
#include <vector>

namespace hyb::app {
namespace {

bool is_plain(const std::string& word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,@%+";
  return !word.empty() && word.find_first_not_of(plain) == std::string::npos;
}

std::string quoted(const std::string& word) {
  if (is_plain(word)) return word;
  std::string text = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      text += "'\\''";
    } else {
      text += letter;
    }
  }
  return text + "'";
}

}  // namespace

std::string shell_line(std::span<const std::string> words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    line += quoted(word);
  }
  return line;
}

std::string resume_command() {
  std::vector<std::string> words;
  std::ifstream arguments("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(arguments, word, '\0');) {
    if (word != "--force" && word != "--retry-failed") words.push_back(word);
  }
  return words.empty() ? "the same command" : shell_line(words);
}

}  // namespace hyb::app
