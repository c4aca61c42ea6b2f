#pragma once

#include <string>
#include <variant>
#include <vector>

#include "core/base/json.h"
#include "core/text/growth_limit.h"
#include "core/text/guarded_text.h"
#include "core/text/pattern.h"

namespace hyb {

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

/// Unicode normalisation in O(n log n) for any number of consecutive combining marks. Characters
/// that compose across different guards take the stricter one.
GuardedText normalize(const GuardedText& source, UnicodeForm form);

/// Rewrites text before it is split into words: the `normalizer` of a tokenizer.json.
class Normalizer {
 public:
  /// A null `json` leaves text unchanged. Throws Error(model) that begins with `where`.
  Normalizer(const Json& json, const std::string& where);

  /// For all texts of one input of `input_bytes`.
  GrowthLimit growth_limit(std::size_t input_bytes) const { return {where_, input_bytes}; }

  /// Throws Error(model) where the steps add more to the text than `growth` allows.
  GuardedText apply(GuardedText text, GrowthLimit& growth) const;

 private:
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Prepend {
    std::string text;
  };
  struct Lowercase {};
  struct StripMarks {};
  struct Strip {
    bool left;
    bool right;
  };
  struct ByteLevel {};
  using Step = std::variant<UnicodeForm, Replace, Prepend, Lowercase, StripMarks, Strip, ByteLevel>;

  void read(const Json& json, const std::string& where, int depth);

  static GuardedText run(UnicodeForm step, const GuardedText& text, GrowthLimit& growth);
  static GuardedText run(const Replace& step, const GuardedText& text, GrowthLimit& growth);
  static GuardedText run(const Prepend& step, const GuardedText& text, GrowthLimit& growth);
  static GuardedText run(Lowercase step, const GuardedText& text, GrowthLimit& growth);
  static GuardedText run(StripMarks step, const GuardedText& text, GrowthLimit& growth);
  static GuardedText run(Strip step, const GuardedText& text, GrowthLimit& growth);
  static GuardedText run(ByteLevel step, const GuardedText& text, GrowthLimit& growth);

  std::string where_;  // for errors
  std::vector<Step> steps_;
};

/// A `pattern` field: {"String": text} or {"Regex": text}.
Pattern read_pattern(const Json& json, const std::string& where);

}  // namespace hyb
