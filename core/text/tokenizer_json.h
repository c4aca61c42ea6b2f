#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/text/vocabulary.h"

namespace hyb {

/// A tokenizer.json as it was read: the two large tables apart from the rest.
struct TokenizerFile {
  struct Merge {
    std::uint32_t begin;  // in merge_texts: the left piece, directly followed by the right one
    std::uint32_t left_bytes;
    std::uint32_t right_bytes;
  };

  std::string source;     ///< the file's name, for errors
  Vocabulary vocabulary;  ///< model.vocab, where it is an object
  std::string merge_texts;
  std::vector<Merge> merges;  ///< model.merges, spelled "a b" or ["a", "b"], in the file's order
  Json rest;                  ///< everything, with both tables empty

  std::string_view left(const Merge& merge) const;
  std::string_view right(const Merge& merge) const;
  std::string_view both(const Merge& merge) const;  ///< the merged piece

  /// Throws Error(model) that begins with the file's name.
  [[noreturn]] void fail(const std::string& text) const;
};

/// Reads and checks the tables; what the rest says is checked by who uses it. Throws Error(model).
TokenizerFile read_tokenizer_json(std::string_view text, std::string_view source);

}  // namespace hyb
