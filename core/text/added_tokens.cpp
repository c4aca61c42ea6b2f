#include "core/text/added_tokens.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/text/unicode.h"

namespace hyb {

Trie::Trie() : nodes_(1) { first_.fill(none); }

void Trie::add(std::string_view key, std::int32_t value) {
  Node node = root;
  for (const char byte : key) {
    Node following = next(node, byte);
    if (following == none) {
      following = static_cast<Node>(nodes_.size());
      nodes_.emplace_back();
      const auto plain = static_cast<unsigned char>(byte);
      if (node == root) first_[plain] = following;
      auto& edges = nodes_[static_cast<std::size_t>(node)].edges;
      const auto place = std::lower_bound(edges.begin(), edges.end(), plain,
                                          [](Edge edge, unsigned char b) { return edge.byte < b; });
      edges.insert(place, {plain, following});
    }
    node = following;
  }
  auto& place = nodes_[static_cast<std::size_t>(node)];
  if (place.value < 0) place.value = value;
}

Trie::Node Trie::next(Node node, char byte) const {
  const auto plain = static_cast<unsigned char>(byte);
  if (node == root) return first_[plain];
  const auto& edges = nodes_[static_cast<std::size_t>(node)].edges;
  const auto place = std::lower_bound(edges.begin(), edges.end(), plain,
                                      [](Edge edge, unsigned char b) { return edge.byte < b; });
  return place != edges.end() && place->byte == plain ? place->node : none;
}

namespace {

// Spellings in published templates. A tool result is not part of an assistant message.
constexpr std::string_view assistant_markers =
    "<think> </think> <|think|> <|/think|> <|begin_of_thought|> <|end_of_thought|> "
    "<seed:think> </seed:think> [THINK] [/THINK] <|START_THINKING|> <|END_THINKING|> "
    "<|channel|> <|message|> <|channel> <channel|> <tool_call> </tool_call> <tool_calls> "
    "</tool_calls> <|tool_call|> <|tool_call_start|> <|tool_call_end|> <|tool_call_begin|> "
    "<|tool_call_argument_begin|> <|tool_calls_section_begin|> <|tool_calls_section_end|> "
    "<TOOLCALL> </TOOLCALL> [TOOL_CALLS] [CALL_ID] [ARGS] <|tool_call> <tool_call|> <|\"|> "
    "<|constrain|> <|python_tag|> <|START_ACTION|> <|END_ACTION|> <minimax:tool_call> "
    "</minimax:tool_call> <function_call> </function_call>";

// Messages of harmony begin and end with these: only with them an answer of several can be read.
constexpr std::string_view message_bounds[] = {"<|start|>", "<|end|>", "<|return|>", "<|call|>"};

// Substrings of turn and role tokens, which some files do not mark as special.
constexpr std::string_view turn_words[] = {
    "|im_",      "bom",      "turn",     "role",      "header",      "user",
    "assistant", "system",   "human",    "developer", "observation", "ipython",
    "start_of",  "end_of",   "begin_of", "endoftext", "startoftext", "eot",
    "eom",       "eos",      "bos",      "inst",      "channel",     "message",
    "return",    "response", "result",   "output",    "sentence",    "special",
};

bool is_white(std::string_view spelling) {
  constexpr char32_t sentencepiece_space = 0x2581;
  for (std::size_t at = 0; at < spelling.size();) {
    const char32_t code_point = next_code_point(spelling, at);
    if (!is_white_space(code_point) && code_point != sentencepiece_space) return false;
  }
  return true;
}

bool names_turn(std::string_view spelling) {
  if (spelling == "<s>" || spelling == "</s>") return true;
  const std::string lower = in_small_letters(std::string(spelling));
  return std::any_of(std::begin(turn_words), std::end(turn_words),
                     [&](std::string_view word) { return lower.find(word) != std::string::npos; });
}

}  // namespace

Guard guard_allowing(std::string_view spelling, bool special) {
  if (!special && is_white(spelling)) return Guard::closed;
  static const std::vector<std::string_view> markers = words_of(assistant_markers);
  const bool marker = std::ranges::find(markers, spelling) != markers.end();
  if (marker || (!special && !names_turn(spelling))) return Guard::thinking;
  return Guard::open;
}

namespace {

/// Bounds the trie walk that starts at every position of a text.
constexpr std::size_t spelling_bytes_max = 512;

std::size_t spaces_begin(std::string_view text, std::size_t at, std::size_t lowest) {
  while (at > lowest) {
    if (!is_white_space(code_point_before(text, at))) break;
    do --at;
    while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  }
  return at;
}

std::size_t spaces_end(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::size_t next = at;
    if (!is_white_space(next_code_point(text, next))) break;
    at = next;
  }
  return at;
}

bool is_whole_word(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && is_word(code_point_before(text, begin))) return false;
  return end == text.size() || !is_word(next_code_point(text, end));
}

}  // namespace

AddedTokens::AddedTokens(const TokenizerFile& file, const Vocabulary& vocabulary,
                         const Normalize& normalize) {
  const std::string where = file.source + ": added_tokens";
  const auto found = file.rest.find("added_tokens");
  if (found == file.rest.end() || found->is_null()) return;
  if (!found->is_array()) file.fail("added_tokens must be a list");
  for (std::size_t i = 0; i < found->size(); ++i) {
    read((*found)[i], where + "[" + std::to_string(i) + "]", vocabulary);
  }
  const bool is_harmony = vocabulary_.find("<|channel|>") && vocabulary_.find("<|message|>");
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    Rules& rules = rules_[i];
    const std::string_view spelling = vocabulary_.piece(rules.token);
    rules.bounds_message =
        is_harmony && std::ranges::find(message_bounds, spelling) != std::end(message_bounds);
    rules.text = rules.normalized ? normalize(spelling) : std::string(spelling);
    if (rules.text.empty()) continue;
    (rules.normalized ? normalized_ : raw_).add(rules.text, static_cast<std::int32_t>(i));
  }
}

void AddedTokens::read(const Json& json, const std::string& where, const Vocabulary& vocabulary) {
  const JsonFields fields(json, where);
  const std::string spelling = fields.text("content");
  const std::int64_t id = fields.integer("id");
  const std::string name = "\"" + spelling + "\"";
  if (spelling.empty()) return;  // nothing to find
  if (spelling.size() > spelling_bytes_max) {
    fields.fail("a spelling has at most " + std::to_string(spelling_bytes_max) +
                " bytes, this one " + std::to_string(spelling.size()));
  }
  if (id < 0 || id >= Vocabulary::ids_max) {
    fields.fail("the id " + std::to_string(id) + " of " + name + " is out of range; ids are 0 to " +
                std::to_string(Vocabulary::ids_max - 1));
  }
  const bool special = fields.flag_or("special", false);
  const TokenId token{static_cast<std::int32_t>(id)};
  const auto model_token = vocabulary.find(spelling);
  if (model_token && *model_token != token) {
    fields.fail(name + " has id " + std::to_string(id) + " here and " +
                std::to_string(index(*model_token)) + " in the vocabulary");
  }
  if (!model_token && vocabulary.contains(token)) {
    fields.fail(name + " has id " + std::to_string(id) + ", which the vocabulary gives to \"" +
                std::string(vocabulary.piece(token)) + "\"");
  }
  switch (vocabulary_.add(spelling, token)) {
    case Vocabulary::Added::repeated_piece:
      fields.fail(name + " is added twice");
    case Vocabulary::Added::repeated_id:
      fields.fail("id " + std::to_string(id) + " is given to " + name + " and to \"" +
                  std::string(vocabulary_.piece(token)) + "\"");
    case Vocabulary::Added::yes:
      break;
  }
  by_id_[index(token)] = rules_.size();
  rules_.push_back({token, fields.flag_or("single_word", false), fields.flag_or("lstrip", false),
                    fields.flag_or("rstrip", false), fields.flag_or("normalized", !special),
                    special, false, guard_allowing(spelling, special), ""});
}

bool AddedTokens::is_special(TokenId token) const {
  const auto found = by_id_.find(index(token));
  return found != by_id_.end() && rules_[found->second].special;
}

bool AddedTokens::is_omitted(TokenId token) const {
  const auto found = by_id_.find(index(token));
  if (found == by_id_.end()) return false;
  const Rules& rules = rules_[found->second];
  return rules.special && rules.guard == Guard::open && !rules.bounds_message;
}

std::string_view AddedTokens::text_of(TokenId token) const {
  const auto found = by_id_.find(index(token));
  return found == by_id_.end() ? std::string_view() : rules_[found->second].text;
}

std::optional<AddedTokens::Match> AddedTokens::longest(const GuardedText& text, std::size_t begin,
                                                       const Trie& trie) const {
  std::optional<Match> match;
  Guard guard = Guard::open;
  Trie::Node node = Trie::root;
  for (std::size_t at = begin; at < text.text.size(); ++at) {
    node = trie.next(node, text.text[at]);
    if (node == Trie::none) break;
    guard = std::max(guard, text.guard(at));
    const std::int32_t value = trie.value(node);
    if (value < 0) continue;
    const Rules& rules = rules_[static_cast<std::size_t>(value)];
    if (guard <= rules.guard) match = {at + 1, &rules};
  }
  return match;
}

std::vector<AddedTokens::Stretch> AddedTokens::cut(const GuardedText& text, bool normalized) const {
  const Trie& trie = normalized ? normalized_ : raw_;
  std::vector<Stretch> stretches;
  std::size_t done = 0;  // end of the last stretch
  for (std::size_t at = 0; at < text.text.size();) {
    const auto match = longest(text, at, trie);
    if (!match) {
      ++at;
      continue;
    }
    const Rules& rules = *match->rules;
    std::size_t begin = at;
    std::size_t end = match->end;
    at = end;
    if (rules.single_word && !is_whole_word(text.text, begin, end)) continue;
    if (rules.strip_left)
      begin = std::max(done, spaces_begin(text.text, begin, std::min(done, begin)));
    if (rules.strip_right) end = spaces_end(text.text, end);
    if (done < begin) stretches.push_back({done, begin, std::nullopt});
    stretches.push_back({begin, end, rules.token});
    done = end;
  }
  if (done < text.text.size()) stretches.push_back({done, text.text.size(), std::nullopt});
  return stretches;
}

}  // namespace hyb
