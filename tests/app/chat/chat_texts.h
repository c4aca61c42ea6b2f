#pragma once

#include <filesystem>
#include <string>

#include "core/io/file.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace hyb::testing {

/// The tokenizer of a small fixture, for templates whose control tokens it mostly lacks: these are
/// then plain text to it, which is as good for questions of position.
inline Tokenizer fixture_tokenizer() {
  const std::filesystem::path folder =
      std::filesystem::path(HYB_TESTS_DIR) / "golden/granite-dense-nope";
  const auto read = [&](const char* file) { return read_whole_file(folder / file, 1 << 24); };
  return Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json",
                              read("tokenizer_config.json"));
}

inline ChatTemplate fixture_template() {
  const std::filesystem::path file =
      std::filesystem::path(HYB_TESTS_DIR) / "golden/granite-dense-nope/chat_template.jinja";
  return ChatTemplate::parse(read_whole_file(file, 1 << 20), "template");
}

/// A template of one of the families that the interpreter is tested with.
inline ChatTemplate family_template(const std::string& name) {
  const std::filesystem::path folder =
      std::filesystem::path(HYB_TESTS_DIR) / "core/text/jinja/templates";
  return ChatTemplate::parse(read_whole_file(folder / (name + ".jinja"), 1 << 20), name);
}

}  // namespace hyb::testing
