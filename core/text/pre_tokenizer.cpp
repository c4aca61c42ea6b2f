#include "core/text/pre_tokenizer.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/text/normalizer.h"
#include "core/text/tokenizer_json.h"
#include "core/text/unicode.h"
#include "core/text/vocabulary.h"

namespace hyb {
namespace {

/// Joins stretches into pieces according to a behaviour. A piece is emitted when the next one
/// starts.
class Joiner {
 public:
  Joiner(SplitBehavior behavior, const Splitter::Piece& piece)
      : behavior_(behavior), piece_(piece) {}

  void add(std::size_t begin, std::size_t end, bool is_match) {
    if (behavior_ == SplitBehavior::removed && is_match) return;
    if (open_ && joins_last(is_match)) {
      end_ = end;
    } else {
      flush();
      begin_ = begin;
      end_ = end;
      open_ = true;
    }
    last_is_match_ = is_match;
  }

  void flush() {
    if (open_ && begin_ < end_) piece_(begin_, end_);
    open_ = false;
  }

 private:
  bool joins_last(bool is_match) const {
    switch (behavior_) {
      case SplitBehavior::contiguous:
        return is_match == last_is_match_;
      case SplitBehavior::merged_with_previous:
        return is_match && !last_is_match_;
      case SplitBehavior::merged_with_next:
        return last_is_match_ && !is_match;
      case SplitBehavior::removed:
      case SplitBehavior::isolated:
        return false;
    }
    return false;
  }

  SplitBehavior behavior_;
  const Splitter::Piece& piece_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool open_ = false;
  bool last_is_match_ = false;
};

}  // namespace

Splitter::Splitter(Pattern pattern, SplitBehavior behavior, bool invert)
    : where_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

Splitter::Splitter(Character character, SplitBehavior behavior)
    : where_(character), behavior_(behavior), invert_(false) {}

template <typename Stretch>
void Splitter::stretches(std::string_view text, const Stretch& stretch) const {
  std::size_t done = 0;
  const auto match = [&](std::size_t begin, std::size_t end) {
    if (done < begin) stretch(done, begin, invert_);
    stretch(begin, end, !invert_);
    done = end;
  };
  if (const Pattern* pattern = std::get_if<Pattern>(&where_)) {
    pattern->each_match(text, match);
  } else {
    const Character character = std::get<Character>(where_);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      if (character(next_code_point(text, at))) match(begin, at);
    }
  }
  if (done < text.size()) stretch(done, text.size(), invert_);
}

void Splitter::split(std::string_view text, const Piece& piece) const {
  if (behavior_ == SplitBehavior::isolated) {
    return stretches(text, [&](std::size_t begin, std::size_t end, bool) {
      if (begin < end) piece(begin, end);
    });
  }
  Joiner joiner(behavior_, piece);
  stretches(text, [&](std::size_t begin, std::size_t end, bool is_match) {
    joiner.add(begin, end, is_match);
  });
  joiner.flush();
}

namespace {

constexpr std::string_view gpt2_words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Rust's \w includes the two joiners.
constexpr std::string_view words_and_marks = R"([\w\u200c\u200d]+|[^\w\s\u200c\u200d]+)";

SplitBehavior read_behavior(const JsonFields& fields) {
  const std::string name = fields.text("behavior");
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  fields.fail("the behavior \"" + name + "\" is not known");
}

std::vector<Splitter> one(Splitter splitter) {
  std::vector<Splitter> list;
  list.push_back(std::move(splitter));
  return list;
}

void replace_spaces(std::string& text, std::string_view replacement) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  for (const char c : text) {
    if (c == ' ') {
      out += replacement;
    } else {
      out += c;
    }
  }
  text = std::move(out);
}

}  // namespace

PreTokenizer::PreTokenizer(const Json& json, const std::string& where) : where_(where) {
  read(json, where, 0);
  check_step_count(steps_.size(), where);
  if (steps_.empty()) return;
  if (auto* last = std::get_if<ByteLevel>(&steps_.back())) {
    last->spell = false;
    byte_level_ = true;
  }
}

void PreTokenizer::read(const Json& json, const std::string& where, int depth) {
  if (json.is_null()) return;
  const JsonFields fields(json, where);
  const std::string type = fields.step_type(
      depth, "pretokenizers", [&](const Json& step, const auto& at) { read(step, at, depth + 1); });
  if (type == "Sequence") return;
  if (type == "ByteLevel") {
    read_byte_level(json, where);
  } else if (type == "Metaspace") {
    read_metaspace(json, where);
  } else if (type == "Split") {
    steps_.emplace_back(Split{{read_pattern(fields.at("pattern"), where + ".pattern"),
                               read_behavior(fields), fields.flag_or("invert", false)}});
  } else if (type == "Digits") {
    const bool single = fields.flag_or("individual_digits", false);
    steps_.emplace_back(
        Split{{is_numeric, single ? SplitBehavior::isolated : SplitBehavior::contiguous}});
  } else if (type == "Punctuation") {
    const bool named = !fields.at("behavior").is_null();
    steps_.emplace_back(
        Split{{is_punctuation, named ? read_behavior(fields) : SplitBehavior::isolated}});
  } else if (type == "Whitespace") {
    steps_.emplace_back(Split{{Pattern(words_and_marks, where), SplitBehavior::removed, true}});
  } else if (type == "WhitespaceSplit") {
    steps_.emplace_back(Split{{is_white_space, SplitBehavior::removed}});
  } else {
    fields.fail("the pre-tokenizer \"" + type + "\" is not supported");
  }
}

void PreTokenizer::read_byte_level(const Json& json, const std::string& where) {
  const JsonFields fields(json, where);
  ByteLevel step{fields.flag_or("add_prefix_space", true), true, {}};
  if (fields.flag_or("use_regex", true)) {
    step.splitters = one({Pattern(gpt2_words, where), SplitBehavior::isolated});
  }
  steps_.emplace_back(std::move(step));
}

void PreTokenizer::read_metaspace(const Json& json, const std::string& where) {
  const JsonFields fields(json, where);
  Metaspace step{fields.text_or("replacement", "\xE2\x96\x81"), Metaspace::Prepend::always, {}};
  const std::string& replacement = step.replacement;
  std::size_t length = 0;
  if (!replacement.empty()) next_code_point(replacement, length);
  if (replacement.empty() || length != replacement.size()) {
    fields.fail("\"replacement\" must be one character, got \"" + replacement + "\"");
  }
  const bool prefix = fields.flag_or("add_prefix_space", true);  // older files
  const std::string scheme = fields.text_or("prepend_scheme", prefix ? "always" : "never");
  if (scheme == "first") {
    step.prepend = Metaspace::Prepend::first;
  } else if (scheme == "never") {
    step.prepend = Metaspace::Prepend::never;
  } else if (scheme != "always") {
    fields.fail("the prepend_scheme \"" + scheme + "\" is not known");
  }
  if (fields.flag_or("split", true)) {
    step.splitters = one({Pattern::literal(replacement, where), SplitBehavior::merged_with_next});
  }
  steps_.emplace_back(std::move(step));
}

void PreTokenizer::cut(std::string_view text, bool at_start, GrowthLimit& growth,
                       const Word& word) const {
  if (!text.empty()) run(0, text, at_start, {growth, word});
}

void PreTokenizer::run(std::size_t step, std::string_view text, bool at_start,
                       const Cut& cut) const {
  if (step == steps_.size()) return cut.word(text);
  std::visit([&](const auto& kind) { run(kind, step, text, at_start, cut); }, steps_[step]);
}

void PreTokenizer::run(const Split& split, std::size_t step, std::string_view text, bool at_start,
                       const Cut& cut) const {
  split.splitter.split(text, [&](std::size_t begin, std::size_t end) {
    run(step + 1, text.substr(begin, end - begin), at_start && begin == 0, cut);
  });
}

void PreTokenizer::run(const ByteLevel& bytes, std::size_t step, std::string_view text,
                       bool at_start, const Cut& cut) const {
  std::string prefixed;
  if (bytes.prefix_space && !text.starts_with(' ')) {
    cut.growth.charge(0, 1);
    prefixed = " ";
    text = prefixed.append(text);
  }
  const auto pass = [&](std::size_t begin, std::size_t end) {
    const std::string_view piece = text.substr(begin, end - begin);
    const bool first = at_start && begin == 0;
    if (bytes.spell) {
      const std::string spelled = to_byte_level(piece);
      cut.growth.charge(piece.size(), spelled.size());
      return run(step + 1, spelled, first, cut);
    }
    run(step + 1, piece, first, cut);
  };
  if (bytes.splitters.empty()) return pass(0, text.size());
  bytes.splitters[0].split(text, pass);
}

void PreTokenizer::run(const Metaspace& spaces, std::size_t step, std::string_view text,
                       bool at_start, const Cut& cut) const {
  std::string replaced(text);
  replace_spaces(replaced, spaces.replacement);
  const bool wanted = spaces.prepend == Metaspace::Prepend::always ||
                      (spaces.prepend == Metaspace::Prepend::first && at_start);
  if (wanted && !replaced.starts_with(spaces.replacement)) replaced.insert(0, spaces.replacement);
  cut.growth.charge(text.size(), replaced.size());
  const std::string_view view = replaced;
  const auto pass = [&](std::size_t begin, std::size_t end) {
    run(step + 1, view.substr(begin, end - begin), at_start && begin == 0, cut);
  };
  if (spaces.splitters.empty()) return pass(0, view.size());
  spaces.splitters[0].split(view, pass);
}

}  // namespace hyb
