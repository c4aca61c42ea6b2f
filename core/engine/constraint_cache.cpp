#include "core/engine/constraint_cache.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/text/answer_scanner.h"
#include "core/text/tokenizer.h"

namespace hyb {

Grammar grammar_of(const AnswerRule& rule) {
  const auto json = [&] { return parse_json(rule.text, rule.source); };
  switch (rule.form) {
    case AnswerRule::Form::json_schema:
      return Grammar::from_json_schema(json(), rule.source);
    case AnswerRule::Form::json_object:
      return Grammar::json_object(rule.source);
    case AnswerRule::Form::regex:
      return Grammar::from_regex(rule.text, rule.source);
    case AnswerRule::Form::one_of:
      return Grammar::one_of(json().get<std::vector<std::string>>(), rule.source);
    case AnswerRule::Form::calls:
      return Grammar::from_parts(json().at("alternatives"), rule.source,
                                 json().at("begin").get<std::string>());
    case AnswerRule::Form::gbnf:
      break;
  }
  return Grammar::from_gbnf(rule.text, rule.source);
}

namespace {

/// Limits the places and the masks of each constraint.
constexpr Constraint::Limits cached_limits = {.bytes_max = std::size_t{16} << 20,
                                              .mask_bytes_max = std::size_t{8} << 20};

}  // namespace

ConstraintCache::Entry::Entry(const AnswerRule& wanted, const VocabularyTrie& vocabulary)
    : rule(wanted), grammar(grammar_of(rule)), constraint(grammar, vocabulary, cached_limits) {}

ConstraintCache::Use ConstraintCache::get(const AnswerRule& rule) {
  const auto found = std::ranges::find_if(entries_, [&](const auto& entry) {
    return entry->rule.form == rule.form && entry->rule.text == rule.text;
  });
  if (found != entries_.end()) {
    std::rotate(found, found + 1, entries_.end());
  } else {
    auto made = std::make_unique<Entry>(rule, vocabulary());
    ++compiled_;
    const auto is_unused = [](const auto& entry) { return entry->uses == 0; };
    if (std::ranges::count_if(entries_, is_unused) >= unused_max) {
      entries_.erase(std::ranges::find_if(entries_, is_unused));
    }
    entries_.push_back(std::move(made));
  }
  return Use(entries_.back().get());
}

/// Special tokens are text where answers show them, but for those of harmony's headers.
const VocabularyTrie& ConstraintCache::vocabulary() {
  if (vocabulary_) return *vocabulary_;
  std::vector<std::string> bytes(static_cast<std::size_t>(vocab_));
  const bool has_headers = thought_markers_of(*tokenizer_).has_headers;
  for (std::int32_t i = 0; i < vocab_; ++i) {
    const TokenId token{i};
    const bool is_hidden = has_headers || tokenizer_->decode({&token, 1}, true).empty();
    if (tokenizer_->is_special(token) && is_hidden) continue;
    bytes[static_cast<std::size_t>(i)] = tokenizer_->bytes_of(token);
  }
  return vocabulary_.emplace(std::move(bytes), ends_);
}

}  // namespace hyb
