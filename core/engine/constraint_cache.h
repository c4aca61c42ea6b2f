#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/constraint/constraint.h"

namespace hyb {

class Tokenizer;

/// Says what an answer must be, as it was written.
struct AnswerRule {
  enum class Form : std::uint8_t { json_schema, json_object, regex, one_of, gbnf, calls };

  Form form = Form::json_object;
  /// A rule of one_of has a JSON list of texts here, one of calls {"begin": ..., "alternatives":
  /// ...} as in Grammar::from_parts().
  std::string text = {};
  std::string source = {};  ///< where it was written: errors begin with it
};

/// Throws Error(usage) as the makers of Grammar do.
Grammar grammar_of(const AnswerRule& rule);

/// The rules of a run, each compiled once for a vocabulary: those in use, and some others. Used by
/// one thread.
class ConstraintCache {
  struct Entry {
    Entry(const AnswerRule& wanted, const VocabularyTrie& vocabulary);

    AnswerRule rule;
    Grammar grammar;
    Constraint constraint;
    std::int64_t uses = 0;
  };

 public:
  /// A rule in use, whose constraint stays. The cache outlives it.
  class Use {
   public:
    Use() = default;
    explicit Use(Entry* entry) : entry_(entry) {
      if (entry_ != nullptr) ++entry_->uses;
    }
    Use(const Use& other) : Use(other.entry_) {}
    Use& operator=(Use other) noexcept {
      std::swap(entry_, other.entry_);
      return *this;
    }
    ~Use() {
      if (entry_ != nullptr) --entry_->uses;
    }
    /// Null: there is no rule.
    Constraint* get() const { return entry_ == nullptr ? nullptr : &entry_->constraint; }

   private:
    Entry* entry_ = nullptr;
  };

  static constexpr std::ptrdiff_t unused_max = 8;

  /// `ends` end an answer; tokens from `vocab` on are never drawn. The tokenizer outlives this.
  ConstraintCache(const Tokenizer& tokenizer, std::vector<TokenId> ends, std::int32_t vocab)
      : tokenizer_(&tokenizer), ends_(std::move(ends)), vocab_(vocab) {}

  /// Throws as grammar_of().
  Use get(const AnswerRule& rule);
  std::int64_t compiled() const { return compiled_; }  ///< rules so far

 private:
  const VocabularyTrie& vocabulary();

  const Tokenizer* tokenizer_;
  std::vector<TokenId> ends_;
  std::int32_t vocab_;
  std::optional<VocabularyTrie> vocabulary_;     ///< once there is a rule
  std::vector<std::unique_ptr<Entry>> entries_;  ///< what was wanted last is at the end
  std::int64_t compiled_ = 0;
};

}  // namespace hyb
