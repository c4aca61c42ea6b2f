#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/json.h"
#include "core/text/pattern.h"
#include "core/text/unicode.h"

namespace hyb {

/// Turns pieces back into text: the `decoder` of a tokenizer.json. Steps act on one piece after the
/// other until Fuse or ByteLevel makes one text of them; behind that only Strip may follow.
class Decoder {
 public:
  /// `json` may be null: pieces are joined by spaces. Throws Error(model) that begins with `where`.
  Decoder(const Json& json, const std::string& where);

  /// One text on its way. The decoder has to outlive it.
  class Run {
   public:
    /// `eager`: give out the good characters of a run of byte tokens at once. Otherwise all of a
    /// run that is ill-formed anywhere becomes U+FFFD, one a byte, as Hugging Face does it.
    Run(const Decoder& decoder, bool eager);

    /// Appends the text that is certain now to `out`.
    void push(std::string_view piece, std::string& out);

    /// Appends the rest. The run is then as new.
    void flush(std::string& out);

   private:
    /// What a step remembers between pieces.
    struct Memory {
      Utf8Stream characters;     // ByteLevel, and eager ByteFallback
      std::string bytes;         // ByteFallback
      std::size_t pieces = 0;    // seen so far
      std::size_t stripped = 0;  // Strip of the whole text: characters taken off its start
      bool started = false;      // it has met another character
      std::string held;          // and characters held back, for they may be its end
    };

    void feed(std::size_t step, std::string_view piece, std::string& out);
    void feed_fallback(std::size_t step, std::string_view piece, std::string& out);
    void end_bytes(std::size_t step, std::string& out);
    void feed_strip(std::size_t step, std::string_view text, std::string& out);

    const Decoder* decoder_;
    bool eager_;
    std::vector<Memory> memories_;
  };

 private:
  struct Join {};  // by spaces: no decoder
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
    bool whole;  // of the whole text, behind Fuse
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

  std::vector<Step> steps_;
  bool fused_ = false;
};

}  // namespace hyb
