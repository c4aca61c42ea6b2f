#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/text/vocabulary.h"

namespace hyb {

/// Limit on the nesting of a tokenizer.json (a Sequence in a Sequence ...).
inline constexpr int nesting_max = 8;

/// The value of a missing member.
inline const Json null_json;

/// Typed access to the fields of an object in a tokenizer.json. Throws Error(model) with the file
/// and the field when a value has another type.
class JsonFields {
 public:
  /// Every error begins with `where`: "tokenizer.json: normalizer". Throws unless `json` is an
  /// object.
  JsonFields(const Json& json, std::string where);

  std::string text(std::string_view key) const;
  std::string text_or(std::string_view key, std::string_view otherwise) const;  // also for null
  bool flag_or(std::string_view key, bool otherwise) const;                     // also for null
  std::int64_t integer(std::string_view key) const;

  /// The value, or null when the key is missing.
  const Json& at(std::string_view key) const;
  const Json& array(std::string_view key) const;

  /// The type of a step that is nested `depth` deep. Where it is a "Sequence", visit(json, where)
  /// is called for each step of its list under `list`.
  template <typename Visit>
  std::string step_type(int depth, std::string_view list, const Visit& visit) const {
    if (depth == nesting_max) fail("nested deeper than " + std::to_string(nesting_max) + " levels");
    std::string type = text("type");
    if (type != "Sequence") return type;
    std::size_t i = 0;
    for (const Json& step : array(list)) visit(step, where_ + "[" + std::to_string(i++) + "]");
    return type;
  }

  const std::string& where() const { return where_; }
  [[noreturn]] void fail(const std::string& text) const;

 private:
  const Json& json_;
  std::string where_;
};

/// A parsed tokenizer.json: its two large tables, and the rest as a tree.
struct TokenizerFile {
  struct Merge {
    std::uint32_t begin;  // in merge_texts: the left piece, directly followed by the right one
    std::uint32_t left_bytes;
    std::uint32_t right_bytes;
  };

  std::string source;     ///< the file's name, for errors
  Vocabulary vocabulary;  ///< model.vocab, if it is an object
  std::string merge_texts;
  std::vector<Merge> merges;  ///< model.merges, spelled "a b" or ["a", "b"], in the file's order
  Json rest;                  ///< the whole file with both tables empty
  bool equal_ranks = false;   ///< neighbours among the merges that make one token have one rank

  /// Throws Error(model) where all texts together have 4 GiB or more.
  void add_merge(std::string_view left, std::string_view right);
  std::string_view left(const Merge& merge) const;
  std::string_view right(const Merge& merge) const;
  std::string_view both(const Merge& merge) const;  ///< the merged piece

  /// Throws Error(model) that begins with the file's name.
  [[noreturn]] void fail(const std::string& text) const;
};

/// Reads and checks the tables; the users of `rest` check it. Throws Error(model).
TokenizerFile read_tokenizer_json(std::string_view text, std::string_view source);

}  // namespace hyb
