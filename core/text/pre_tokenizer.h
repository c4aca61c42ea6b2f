#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/json.h"
#include "core/text/pattern.h"
#include "core/text/split.h"

namespace hyb {

/// Cuts normalised text into the words that merges stay within: the `pre_tokenizer` of a
/// tokenizer.json.
class PreTokenizer {
 public:
  using Word = std::function<void(std::string_view)>;

  /// `json` may be null: the text is one word. Throws Error(model) that begins with `where`.
  PreTokenizer(const Json& json, const std::string& where);

  /// Calls `word` for every word in order; a view is valid during its call only. `at_start`: the
  /// text begins the whole input. Throws Error(model) where a pattern exceeds its limits.
  void cut(std::string_view text, bool at_start, const Word& word) const;

  /// The last step spells bytes as characters (see byte_level.h); words come as bytes, and who
  /// takes them does the spelling.
  bool byte_level() const { return byte_level_; }

 private:
  struct Split {
    Splitter splitter;
  };
  struct ByteLevel {
    bool prefix_space;
    bool spell;                       // false for the last step
    std::vector<Splitter> splitters;  // one or none
  };
  struct Metaspace {
    enum class Prepend { always, first, never };
    std::string replacement;
    Prepend prepend;
    std::vector<Splitter> splitters;  // one or none
  };
  using Step = std::variant<Split, ByteLevel, Metaspace>;

  void read(const Json& json, const std::string& where, int depth);
  void read_byte_level(const Json& json, const std::string& where);
  void read_metaspace(const Json& json, const std::string& where);

  /// Runs the steps from `step` on.
  void run(std::size_t step, std::string_view text, bool at_start, const Word& word) const;
  void run(const Split& split, std::size_t step, std::string_view text, bool at_start,
           const Word& word) const;
  void run(const ByteLevel& bytes, std::size_t step, std::string_view text, bool at_start,
           const Word& word) const;
  void run(const Metaspace& spaces, std::size_t step, std::string_view text, bool at_start,
           const Word& word) const;

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace hyb
