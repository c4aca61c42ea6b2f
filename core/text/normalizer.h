#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/json.h"
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

  GuardedText apply(GuardedText text) const;

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

  static GuardedText run(UnicodeForm step, const GuardedText& text);
  static GuardedText run(const Replace& step, const GuardedText& text);
  static GuardedText run(const Prepend& step, const GuardedText& text);
  static GuardedText run(Lowercase step, const GuardedText& text);
  static GuardedText run(StripMarks step, const GuardedText& text);
  static GuardedText run(Strip step, const GuardedText& text);
  static GuardedText run(ByteLevel step, const GuardedText& text);

  std::vector<Step> steps_;
};

/// A `pattern` field: {"String": text} or {"Regex": text}.
Pattern read_pattern(const Json& json, const std::string& where);

}  // namespace hyb
