#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/json.h"
#include "core/text/growth_limit.h"
#include "core/text/pattern.h"

namespace hyb {

/// Says what happens to the matches at which a text is split.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Splits texts at the matches of a pattern or at characters of a class.
class Splitter {
 public:
  using Character = bool (*)(char32_t);
  using Piece = std::function<void(std::size_t begin, std::size_t end)>;

  /// `invert`: the text is split at what does not match.
  Splitter(Pattern pattern, SplitBehavior behavior, bool invert = false);
  Splitter(Character character, SplitBehavior behavior);

  /// Calls `piece` for every non-empty piece, in order.
  void split(std::string_view text, const Piece& piece) const;

 private:
  /// Calls `stretch(begin, end, is_match)` for the matches and the text between them, in order.
  template <typename Stretch>
  void stretches(std::string_view text, const Stretch& stretch) const;

  std::variant<Pattern, Character> where_;
  SplitBehavior behavior_;
  bool invert_;
};

/// Splits normalised text into words, which merges do not cross: the `pre_tokenizer` of a
/// tokenizer.json.
class PreTokenizer {
 public:
  using Word = std::function<void(std::string_view)>;

  /// A null `json` makes the whole text one word. Throws Error(model) that begins with `where`.
  PreTokenizer(const Json& json, const std::string& where);

  /// Calls `word` for every word in order; its argument is valid during the call only. `at_start`:
  /// the text is the start of the whole input. Throws Error(model) when a pattern exceeds its
  /// limits, or the steps add more to the text than `growth` allows.
  void cut(std::string_view text, bool at_start, GrowthLimit& growth, const Word& word) const;

  /// For all texts of one input of `input_bytes`.
  GrowthLimit growth_limit(std::size_t input_bytes) const { return {where_, input_bytes}; }

  /// The last step spells bytes as characters (see vocabulary.h): words are passed as bytes, and
  /// the caller spells them.
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

  /// Holds what one call of cut() carries through the steps.
  struct Cut {
    GrowthLimit& growth;
    const Word& word;
  };

  /// Runs the steps from `step` on.
  void run(std::size_t step, std::string_view text, bool at_start, const Cut& cut) const;
  void run(const Split& split, std::size_t step, std::string_view text, bool at_start,
           const Cut& cut) const;
  void run(const ByteLevel& bytes, std::size_t step, std::string_view text, bool at_start,
           const Cut& cut) const;
  void run(const Metaspace& spaces, std::size_t step, std::string_view text, bool at_start,
           const Cut& cut) const;

  std::string where_;  // for errors
  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace hyb
