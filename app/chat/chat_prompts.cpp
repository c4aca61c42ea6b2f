#include "app/chat/chat_prompts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "app/template_probe.h"
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
    : chat_template_(chat_template),
      tokenizer_(tokenizer),
      mode_(mode),
      takes_reasoning_(takes_reasoning(chat_template, tokenizer)) {
  set_think({});
  if (mode_ == HistoryMode::as_template) return;
  Conversation probe;
  probe.add({.message = "a", .answer = {}, .answer_text = plain_answer});
  lead(probe, probe.here(), "b");
}

EncodedPrompt ChatPrompts::rendered(const Conversation& conversation, std::int32_t turn,
                                    const Question& question) const {
  const std::vector<OwnTurn> own_turns = conversation.own_turns(turn);
  return encode_chat(chat_template_, tokenizer_,
                     {.messages = conversation.messages(turn, question.message, takes_reasoning_),
                      .variables = think_variables(question.think),
                      .own_turns = own_turns});
}

EncodedPrompt ChatPrompts::encoded_lead(const Conversation& conversation, std::int32_t turn,
                                        const Question& question) const {
  Json messages = conversation.messages(turn, question.message);
  for (Json& past : messages) {
    if (past["role"] == "assistant") past["content"] = plain_answer;
  }
  const Rendered rendered =
      render_chat(chat_template_, tokenizer_,
                  {.messages = messages, .variables = think_variables(question.think)});
  const std::span<const RenderedPiece> pieces(rendered.pieces);
  std::size_t answered = pieces.size();
  while (answered > 0 && pieces[answered - 1].source != TextSource::assistant) --answered;
  if (answered == 0) {
    throw Error(ErrorKind::model,
                "the chat template shows no past answers, so they can't be preserved; use "
                "--history template");
  }
  const auto behind = pieces.subspan(answered);
  EncodedPrompt encoded{.tokens = encode_pieces(tokenizer_, behind),
                        .start = {.may_think = true, .opening = opening_of(rendered)}};
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
  return lead_ids(conversation, turn, {message, think_});
}

std::vector<TokenId> ChatPrompts::lead_ids(const Conversation& conversation, std::int32_t turn,
                                           const Question& question) const {
  if (turn == 0) return rendered(conversation, 0, question).tokens;
  return encoded_lead(conversation, turn, question).tokens;
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
                                     const Question& question) const {
  const std::vector<std::int32_t> path = conversation.path(turn);
  if (path.empty()) return rendered(conversation, 0, question);
  // The system prompt may be another one by now: it stands in the first lead.
  const Exchange& first = conversation.turn(path.front()).exchange;
  EncodedPrompt prompt = rendered(conversation, 0, {first.message, first.think});
  std::vector<std::int32_t>& ends = prompt.message_ends;
  if (ends.size() > 1) ends.erase(ends.begin() + 1, ends.end());
  for (const std::int32_t number : path) {
    const auto& [parent, exchange] = conversation.turn(number);
    if (parent != 0) {
      append(prompt.tokens, exchange.lead.empty()
                                ? lead_ids(conversation, parent, {exchange.message, exchange.think})
                                : exchange.lead);
    }
    append(prompt.tokens, answer_ids(exchange));
  }
  const EncodedPrompt last = encoded_lead(conversation, turn, question);
  prompt.start = last.start;
  for (const std::int32_t end : last.message_ends) {
    prompt.message_ends.push_back(static_cast<std::int32_t>(prompt.tokens.size()) + end);
  }
  append(prompt.tokens, last.tokens);
  return prompt;
}

EncodedPrompt ChatPrompts::made(const Conversation& conversation, std::int32_t turn,
                                const Question& question) const {
  return mode_ == HistoryMode::preserve ? preserved(conversation, turn, question)
                                        : rendered(conversation, turn, question);
}

void ChatPrompts::set_think(Think think) {
  think_ = think;
  passing_tokens_ = mode_ == HistoryMode::preserve ? 0 : passing_tokens();
}

/// Told by example: a question, an answer as a model would give it, another question.
std::int32_t ChatPrompts::passing_tokens() const {
  try {
    const std::string question = "a";
    Conversation probe;
    const EncodedPrompt first = rendered(probe, 0, {question, think_});
    const std::string thought =
        first.start.opening.empty() ? std::string() : std::string(plain_answer) + "\n</think>\n\n";
    probe.add({.message = question,
               .answer = {},
               .answer_text = thought + plain_answer,
               .opening = first.start.opening});
    const EncodedPrompt second = rendered(probe, probe.here(), {question, think_});
    const std::int32_t common = common_tokens(first.tokens, second.tokens);
    return static_cast<std::int32_t>(first.tokens.size()) - common;
  } catch (const Error&) {
    return 0;  // a real conversation will say what the template refuses
  }
}

EncodedPrompt ChatPrompts::prompt(const Conversation& conversation, std::int32_t turn,
                                  const std::string& message) const {
  EncodedPrompt prompt = made(conversation, turn, {message, think_});
  if (passing_tokens_ == 0) return prompt;
  const std::int32_t end = static_cast<std::int32_t>(prompt.tokens.size()) - passing_tokens_;
  std::vector<std::int32_t>& ends = prompt.message_ends;
  if (end > (ends.empty() ? 0 : ends.back())) ends.push_back(end);
  return prompt;
}

EncodedPrompt ChatPrompts::prompt_of(const Conversation& conversation, std::int32_t turn) const {
  const auto& [parent, exchange] = conversation.turn(turn);
  return made(conversation, parent, {exchange.message, exchange.think});
}

/// Told by example: what two messages without a common begin have in common. Neither may the text's
/// first word join the template's last, nor may white space at its begin.
std::vector<TokenId> ChatPrompts::lasting(const Conversation& conversation,
                                          std::int32_t turn) const {
  const std::string letter = "a", figure = "\n\n1";
  EncodedPrompt word = made(conversation, turn, {letter, think_});
  const EncodedPrompt number = made(conversation, turn, {figure, think_});
  auto length = static_cast<std::size_t>(common_tokens(word.tokens, number.tokens));
  if (word.message_ends.empty()) return {};
  length = std::min(length, static_cast<std::size_t>(word.message_ends.back()));
  word.tokens.resize(length);
  return std::move(word.tokens);
}

}  // namespace hyb::app
