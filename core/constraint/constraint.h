#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/constraint/grammar.h"
#include "core/constraint/vocabulary_trie.h"

namespace hyb {

class GrammarMatcher;

/// A grammar over a vocabulary, made once for all answers that it binds. The places in an answer
/// (sets of stacks of states) are numbered when they are first met, and so are the steps between
/// them and their masks: whatever an answer has been through costs the others a look-up. Used by
/// one thread at a time. Both arguments must outlive it, and it its matchers.
class Constraint {
 public:
  struct Limits {
    std::size_t bytes_max = std::size_t{64} << 20;       ///< of places and steps
    std::size_t mask_bytes_max = std::size_t{64} << 20;  ///< at least one mask is kept
  };

  Constraint(const Grammar& grammar, const VocabularyTrie& vocabulary)
      : Constraint(grammar, vocabulary, Limits{}) {}
  Constraint(const Grammar& grammar, const VocabularyTrie& vocabulary, const Limits& limits);
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

  const VocabularyTrie& vocabulary() const { return vocabulary_; }
  std::size_t places() const { return places_.size(); }

 private:
  friend class GrammarMatcher;
  using PlaceId = std::int32_t;
  static constexpr PlaceId dead = -1, unknown = -2;

  struct Item {
    std::int32_t frame, state;
    auto operator<=>(const Item&) const = default;
  };
  /// All calls of a rule at one byte and depth: they share what is read until the rule ends.
  struct Frame {
    std::vector<Item> returns;  // in order: where the answer goes on then
    int depth = 0;
    bool operator==(const Frame&) const = default;
  };
  /// A frame while close() finds its returns; in items it is -1 - its index.
  struct Call {
    std::int32_t start;
    Frame frame;
    bool ended = false;
    std::int32_t id = -1;
  };
  struct Place {
    std::vector<Item> items;  // in order; their states read bytes
    bool accepts = false;
    // Any characters of words, or of text, at most this many, can follow.
    std::array<int, VocabularyTrie::kinds> text{};
    bool operator==(const Place& other) const {
      return accepts == other.accepts && items == other.items;
    }
  };
  struct Hash {
    std::size_t operator()(std::span<const Item> items) const;
    std::size_t operator()(const Frame& frame) const { return (*this)(frame.returns); }
    std::size_t operator()(const Place& place) const { return (*this)(place.items); }
  };

  static std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }
  PlaceId start();
  PlaceId step(PlaceId place, std::uint8_t byte) {
    const std::size_t at = index(place) * classes_ + grammar_.byte_class(byte);
    return steps_[at] == unknown ? find_step(place, byte) : steps_[at];
  }
  PlaceId step(PlaceId place, std::string_view bytes);
  PlaceId find_step(PlaceId place, std::uint8_t byte);
  /// The place of what is in `found_` and what follows of it without a byte.
  PlaceId close();
  void find(Item item);
  void call(Item site, std::int32_t start);
  const Frame& frame(std::int32_t id) const {
    return id < 0 ? calls_[index(-1 - id)].frame : *frames_[index(id)];
  }
  PlaceId id_of(Place place);
  std::int32_t id_of(Frame frame);
  std::int32_t id_of_call(std::int32_t id);
  /// Gives the frames of items other numbers.
  template <typename Renumber>
  static void renumber(std::vector<Item>& items, Renumber&& id);
  std::span<const std::uint32_t> mask(PlaceId place);
  void fill(PlaceId place, std::span<std::uint32_t> mask);
  void walk(PlaceId place, VocabularyTrie::Kind kind, std::span<std::uint32_t> mask);
  int text(PlaceId place, VocabularyTrie::Kind kind) const {
    return place < 0 || kind == VocabularyTrie::other ? 0 : places_[index(place)]->text[kind];
  }
  /// Drops the places in which no matcher is or was, where they take too much memory.
  void collect();

  const Grammar& grammar_;
  const VocabularyTrie& vocabulary_;
  Limits limits_;
  std::size_t classes_;
  std::vector<const Frame*> frames_;  // the keys of frame_ids_
  std::unordered_map<Frame, std::int32_t, Hash> frame_ids_;
  std::vector<const Place*> places_;  // the keys of place_ids_
  std::unordered_map<Place, PlaceId, Hash> place_ids_;
  std::vector<PlaceId> steps_;  // by place and class of byte
  std::unordered_map<PlaceId, std::vector<std::uint32_t>> masks_;
  std::size_t bytes_ = 0;
  std::size_t work_ = 0;
  std::vector<Item> found_;    // by close()
  std::vector<Call> calls_;    // likewise
  std::vector<PlaceId> path_;  // by walk()
  std::set<GrammarMatcher*> matchers_;
};

/// Says where one answer is in its constraint. Cheap to copy: for several answers of one prompt,
/// reuse, and drafts.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(Constraint& constraint);
  GrammarMatcher(const GrammarMatcher& other);
  GrammarMatcher& operator=(const GrammarMatcher& other);
  ~GrammarMatcher();

  /// Goes on by a token, or by the end of the answer; false, and nothing changes: the grammar does
  /// not allow it here. After the end nothing is allowed.
  bool accept(TokenId token);
  /// Goes on by bytes; nothing changes unless all are allowed.
  bool accept_bytes(std::string_view bytes);
  /// One bit per token, the lowest of each word first: the tokens that accept() takes. Valid until
  /// the constraint is used again. All zero only after the end, or where the vocabulary lacks the
  /// bytes that are needed.
  std::span<const std::uint32_t> mask();
  /// The grammar may end here.
  bool is_complete() const;
  /// An end token was accepted.
  bool has_ended() const { return place_ == ended; }
  /// The bytes that must follow whatever is drawn, at most `bytes_max`.
  std::string forced_bytes(std::size_t bytes_max);

 private:
  friend class Constraint;
  static constexpr std::int32_t ended = -3;

  Constraint* constraint_;
  std::int32_t place_;
};

}  // namespace hyb
