#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hyb {

/// Symbols that expressions are made of, besides characters, which are smaller.
enum Symbol : char32_t {
  first_byte = 0x110000,  ///< a byte that is written as it is; how characters are is a grammar's
  text_begin = 0x120000,  ///< the start of a text, which takes no character; likewise its end
  text_end = 0x130000,
  first_rule = 0x200000,  ///< all that a rule of a grammar allows
};

/// A set of symbols as ranges, both ends included, in order, with gaps between them.
class SymbolSet {
 public:
  static constexpr char32_t last = 0x10FFFF;  ///< character
  using Range = std::pair<char32_t, char32_t>;

  SymbolSet() = default;
  explicit SymbolSet(std::vector<Range> ranges);  ///< in any order, overlapping or not
  SymbolSet complement() const;                   ///< all other characters
  SymbolSet both(const SymbolSet& other) const;   ///< characters of both
  const std::vector<Range>& ranges() const { return ranges_; }
  auto operator<=>(const SymbolSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

/// Languages as regular expressions with intersection and complement. Each is kept once and has a
/// number. What may follow a symbol is an expression again (Brzozowski's derivative), so they are
/// also the states of their automata. Throws Error(usage) that begins with `source` where these
/// take too much time or memory.
class Expressions {
 public:
  using Id = std::int32_t;
  static constexpr Id nothing = 0, empty = 1, any = 3;  ///< no text, the empty one, all texts
  static constexpr int unbounded = -1, count_max = 100'000;

  struct Edge {
    char32_t low, high;
    Id to;
  };

  explicit Expressions(std::string source);

  Id chars(SymbolSet set);
  Id one(char32_t symbol) { return chars(SymbolSet({{symbol, symbol}})); }
  Id text(std::string_view text);   ///< well-formed UTF-8
  Id bytes(std::string_view text);  ///< written as they are
  Id sequence(Id head, Id tail);
  Id sequence(const std::vector<Id>& parts);
  Id choice(std::vector<Id> parts);
  Id both(Id a, Id b);
  Id complement(Id language);  ///< all other texts
  Id repeat(Id part, int min, int max);
  /// Digits that continue a number whose remainder so far is `rest` to a multiple of `divisor`.
  Id multiples(int divisor, int rest);
  /// A text by itself: what its text_begin and text_end refer to.
  Id whole(Id language);

  /// Says what may follow each symbol, at most one expression per symbol.
  const std::vector<Edge>& next(Id id);
  bool accepts(Id id) const { return entry(id).accepts; }  ///< the empty text is allowed
  /// The parts of a choice, or the expression itself.
  std::vector<Id> alternatives(Id id) const;
  bool is_empty(Id language);
  bool contains(Id language, std::string_view text);
  const std::string& source() const { return source_; }

 private:
  enum class Kind { chars, sequence, choice, both, complement, repeat, multiples, whole };
  struct Node {
    Kind kind;
    std::vector<Id> parts = {};
    std::int32_t a = 0, b = 0;  // counts of a repetition; rest and divisor of multiples
    SymbolSet set = {};
    bool operator==(const Node&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Node& node) const;
  };
  struct Entry {
    const Node* node;  // a key of ids_
    bool accepts;
    bool plain;           // characters only
    std::int32_t height;  // calls of next() that one may make, one in the other
  };

  const Entry& entry(Id id) const { return entries_[static_cast<std::size_t>(id)]; }
  const Node& node(Id id) const { return *entry(id).node; }
  Id add(Node node, bool accepts);
  Id within(Id language);
  Id skip(Id language, Symbol symbol);
  std::vector<Edge> derive(const Node& node);
  template <typename Join>
  std::vector<Edge> overlay(std::vector<Edge> edges, Join&& join);
  void spend(std::size_t work);

  std::string source_;
  std::unordered_map<Node, Id, Hash> ids_;
  std::vector<Entry> entries_;
  std::unordered_map<Id, std::vector<Edge>> edges_;
  std::size_t work_ = 0;
};

}  // namespace hyb
