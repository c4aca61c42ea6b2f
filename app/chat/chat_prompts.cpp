#include "app/chat/chat_prompts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "core/base/common_tokens.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

/// A past answer that no template has a reason to change.
constexpr const char* plain_answer = "ok";

void append(std::vector<TokenId>& tokens, std::span<const TokenId> more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

}  // namespace

ChatPrompts::ChatPrompts(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                         HistoryMode mode)
    : chat_template_(chat_template), tokenizer_(tokenizer), mode_(mode) {
  if (mode_ == HistoryMode::as_template) return;
  Conversation probe;
  probe.add({.message = "a", .answer = {}, .answer_text = plain_answer});
  lead(probe, probe.here(), "b");
}

EncodedPrompt ChatPrompts::rendered(const Conversation& conversation, std::int32_t turn,
                                    const std::string& message) const {
  const std::vector<OwnTurn> own_turns = conversation.own_turns(turn);
  return encode_chat(chat_template_, tokenizer_,
                     {.messages = conversation.messages(turn, message),
                      .variables = Json::object(),
                      .own_turns = own_turns});
}

EncodedPrompt ChatPrompts::encoded_lead(const Conversation& conversation, std::int32_t turn,
                                        const std::string& message) const {
  Json messages = conversation.messages(turn, message);
  for (Json& past : messages) {
    if (past["role"] == "assistant") past["content"] = plain_answer;
  }
  const Rendered rendered =
      render_chat(chat_template_, tokenizer_, {.messages = messages, .variables = Json::object()});
  const std::span<const RenderedPiece> pieces(rendered.pieces);
  std::size_t answered = pieces.size();
  while (answered > 0 && pieces[answered - 1].source != TextSource::assistant) --answered;
  if (answered == 0) {
    throw Error(ErrorKind::model,
                "the chat template shows no past answers, so they can't be preserved; use "
                "--history template");
  }
  const auto behind = pieces.subspan(answered);
  EncodedPrompt encoded{.tokens = encode_pieces(tokenizer_, behind)};
  std::size_t asked = 0;  // a template may leave nothing of a message, such as a mere "/think"
  for (std::size_t i = 0; i < behind.size(); ++i) {
    if (behind[i].source == TextSource::person) asked = i;
  }
  const auto before = encode_pieces(tokenizer_, behind.first(asked));
  encoded.message_ends = {common_tokens(before, encoded.tokens)};
  return encoded;
}

std::vector<TokenId> ChatPrompts::lead(const Conversation& conversation, std::int32_t turn,
                                       const std::string& message) const {
  if (turn == 0) return rendered(conversation, 0, message).tokens;
  return encoded_lead(conversation, turn, message).tokens;
}

/// Of an answer cut at a stop string the ids say more than was shown: then its text counts.
std::vector<TokenId> ChatPrompts::answer_ids(const Exchange& exchange) const {
  if (!exchange.answer.tokens.empty() || exchange.answer_text.empty()) {
    return exchange.answer.tokens;
  }
  const RenderedPiece piece{.text = exchange.answer_text, .source = TextSource::assistant};
  return encode_pieces(tokenizer_, std::span(&piece, 1));
}

EncodedPrompt ChatPrompts::preserved(const Conversation& conversation, std::int32_t turn,
                                     const std::string& message) const {
  const std::vector<std::int32_t> path = conversation.path(turn);
  if (path.empty()) return rendered(conversation, 0, message);
  // The system prompt may be another one by now: it stands in the first lead.
  EncodedPrompt prompt =
      rendered(conversation, 0, conversation.turn(path.front()).exchange.message);
  std::vector<std::int32_t>& ends = prompt.message_ends;
  if (ends.size() > 1) ends.erase(ends.begin() + 1, ends.end());
  for (const std::int32_t number : path) {
    const auto& [parent, exchange] = conversation.turn(number);
    if (parent != 0) {
      append(prompt.tokens,
             exchange.lead.empty() ? lead(conversation, parent, exchange.message) : exchange.lead);
    }
    append(prompt.tokens, answer_ids(exchange));
  }
  const EncodedPrompt last = encoded_lead(conversation, turn, message);
  for (const std::int32_t end : last.message_ends) {
    prompt.message_ends.push_back(static_cast<std::int32_t>(prompt.tokens.size()) + end);
  }
  append(prompt.tokens, last.tokens);
  return prompt;
}

EncodedPrompt ChatPrompts::prompt(const Conversation& conversation, std::int32_t turn,
                                  const std::string& message) const {
  return mode_ == HistoryMode::preserve ? preserved(conversation, turn, message)
                                        : rendered(conversation, turn, message);
}

/// Told by example: what two messages without a common begin have in common. Neither may the text's
/// first word join the template's last, nor may white space at its begin.
std::vector<TokenId> ChatPrompts::lasting(const Conversation& conversation,
                                          std::int32_t turn) const {
  EncodedPrompt word = prompt(conversation, turn, "a");
  const EncodedPrompt number = prompt(conversation, turn, "\n\n1");
  auto length = static_cast<std::size_t>(common_tokens(word.tokens, number.tokens));
  if (word.message_ends.empty()) return {};
  length = std::min(length, static_cast<std::size_t>(word.message_ends.back()));
  word.tokens.resize(length);
  return std::move(word.tokens);
}

}  // namespace hyb::app
