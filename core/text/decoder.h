#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/json.h"
#include "core/text/growth_limit.h"
#include "core/text/pattern.h"
#include "core/text/unicode.h"

namespace hyb {

/// Turns pieces back into text: the `decoder` of a tokenizer.json. Steps process one piece at a
/// time until Fuse or ByteLevel joins them into one text; after that only Strip may follow.
class PieceDecoder {
 public:
  /// A null `json` joins pieces by spaces. Throws Error(model) that begins with `where`.
  PieceDecoder(const Json& json, const std::string& where);

  /// The bytes that a piece has within a text, where nothing is stripped from the text's ends. By
  /// themselves they need not be well-formed UTF-8. Throws as Run::push().
  std::string bytes_of(std::string_view piece) const;

  /// Decodes one text. The decoder must outlive it.
  class Run {
   public:
    /// `eager`: emits the valid characters of a run of byte tokens at once. Otherwise a run that is
    /// ill-formed anywhere becomes U+FFFD as a whole, one per byte, as in Hugging Face.
    Run(const PieceDecoder& decoder, bool eager);

    /// Appends the text that is final so far to `out`. Throws Error(model) where the steps make
    /// much more of a piece than it has (see growth_limit.h).
    void push(std::string_view piece, std::string& out);

    /// Appends the rest and resets the run.
    void flush(std::string& out);

   private:
    /// Holds what a step keeps between pieces.
    struct State {
      Utf8Stream characters;     // ByteLevel, and eager ByteFallback
      std::string bytes;         // ByteFallback
      std::size_t pieces = 0;    // seen so far
      std::size_t stripped = 0;  // Strip of the whole text: characters removed from its start
      bool started = false;      // another character was seen
      std::string held;          // characters that may turn out to be its end
    };

    void feed(std::size_t step, std::string_view piece, std::string& out);
    void feed_fallback(std::size_t step, std::string_view piece, std::string& out);
    void end_bytes(std::size_t step, std::string& out);
    void feed_strip(std::size_t step, std::string_view text, std::string& out);

    const PieceDecoder* decoder_;
    bool eager_;
    GrowthLimit growth_;  // of one piece, or of a run of byte tokens
    std::vector<State> states_;
  };

 private:
  struct Join {};  // by spaces; no decoder in the file
  struct ByteLevel {};
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct ByteFallback {};
  struct Fuse {};
  struct Strip {
    std::string character;
    std::size_t start;
    std::size_t stop;
    bool whole;  // strips the whole text, after Fuse
  };
  struct Metaspace {
    std::string replacement;
    bool strips_first;
  };
  using Step = std::variant<Join, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace>;

  void read(const Json& json, const std::string& where, int depth);
  void read_strip(const Json& json, const std::string& where);
  void read_metaspace(const Json& json, const std::string& where);
  void add(Step step, const std::string& where, const std::string& type);

  std::string where_;  // for errors
  std::vector<Step> steps_;
  bool fused_ = false;
};

}  // namespace hyb
