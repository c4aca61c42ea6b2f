#include "app/chat/prompts.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/request/thoughts.h"
#include "app/request/tools.h"
#include "app/ui/table.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

/// A past answer that no template has a reason to change.
constexpr const char* plain_answer = "ok";

void append(std::vector<TokenId>& tokens, std::span<const TokenId> more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

}  // namespace

ChatPrompts::ChatPrompts(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                         HistoryMode mode, Json tools)
    : chat_template_(chat_template),
      tokenizer_(tokenizer),
      mode_(mode),
      tools_(std::move(tools)),
      thoughts_{.markers = thought_markers_of(tokenizer),
                .takes_reasoning = takes_reasoning(chat_template, tokenizer)} {
  if (!tools_.is_null() && !chat_template.reads("tools")) {
    throw Error(ErrorKind::usage, "--tools: the model's chat template does not read tools");
  }
  set_think({});
  if (mode_ == HistoryMode::as_template) return;
  Conversation probe;
  probe.add({.message = "a", .answer = {}, .answer_text = plain_answer});
  lead(probe, probe.here(), "b");
}

ChatPrompt ChatPrompts::asked(Json messages, Think think) const {
  ChatPrompt prompt{
      .messages = std::move(messages), .variables = think_variables(think), .tools = tools_};
  add_tools(prompt.variables, tools_);
  return prompt;
}

EncodedPrompt ChatPrompts::rendered(const Conversation& conversation, std::int32_t turn,
                                    const Question& question) const {
  const std::vector<OwnTurn> own_turns = conversation.own_turns(turn);
  ChatPrompt prompt =
      asked(conversation.messages(turn, question.message, thoughts_), question.think);
  prompt.own_turns = own_turns;
  return encode_chat(chat_template_, tokenizer_, prompt);
}

EncodedPrompt ChatPrompts::encoded_lead(const Conversation& conversation, std::int32_t turn,
                                        const Question& question) const {
  Json messages = conversation.messages(turn, question.message);
  for (Json& past : messages) {
    if (past["role"] == "assistant") past["content"] = plain_answer;
  }
  const Rendered rendered =
      render_chat(chat_template_, tokenizer_, asked(std::move(messages), question.think));
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
                        .start = {.may_think = true,
                                  .opening = opening_of(rendered, thoughts_.markers),
                                  .markers = thoughts_.markers,
                                  .calls = call_terms(asked({}, {}), chat_template_, tokenizer_)}};
  std::size_t asked = 0;  // a template may leave nothing of a message, such as a mere "/think"
  for (std::size_t i = 0; i < behind.size(); ++i) {
    if (behind[i].source == TextSource::person) asked = i;
  }
  const auto before = encode_pieces(tokenizer_, behind.first(asked));
  encoded.message_ends = {common_prefix(before, encoded.tokens)};
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

/// An answer cut at a stop string has ids of more than was shown: its text is encoded instead.
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
  // The system prompt may be another one by now: it is in the first lead.
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
  transient_tokens_ = mode_ == HistoryMode::preserve ? 0 : transient_tokens();
}

/// Found by example: a question, an answer as a model would give it, another question.
std::int32_t ChatPrompts::transient_tokens() const {
  try {
    const std::string question = "a";
    Conversation probe;
    const EncodedPrompt first = rendered(probe, 0, {question, think_});
    const ThoughtMarkers& markers = thoughts_.markers;
    const std::string thought =
        first.start.opening.empty()
            ? std::string()
            : fmt::format("{}\n{}{}\n\n", plain_answer, markers.end, markers.answer);
    probe.add({.message = question,
               .answer_text = thought + plain_answer,
               .opening = first.start.opening});
    const EncodedPrompt second = rendered(probe, probe.here(), {question, think_});
    const std::int32_t common = common_prefix(first.tokens, second.tokens);
    return static_cast<std::int32_t>(first.tokens.size()) - common;
  } catch (const Error&) {
    return 0;  // a real conversation will say what the template refuses
  }
}

EncodedPrompt ChatPrompts::prompt(const Conversation& conversation, std::int32_t turn,
                                  const std::string& message) const {
  EncodedPrompt prompt = made(conversation, turn, {message, think_});
  if (transient_tokens_ == 0) return prompt;
  const std::int32_t end = static_cast<std::int32_t>(prompt.tokens.size()) - transient_tokens_;
  std::vector<std::int32_t>& ends = prompt.message_ends;
  if (end > (ends.empty() ? 0 : ends.back())) ends.push_back(end);
  return prompt;
}

EncodedPrompt ChatPrompts::prompt_of(const Conversation& conversation, std::int32_t turn) const {
  const auto& [parent, exchange] = conversation.turn(turn);
  return made(conversation, parent, {exchange.message, exchange.think});
}

/// Found by example: the common prefix of prompts for two messages that share none. The text's
/// first word must not merge with the template's last, nor may white space at its start.
std::vector<TokenId> ChatPrompts::stable_prefix(const Conversation& conversation,
                                                std::int32_t turn) const {
  const std::string letter = "a", figure = "\n\n1";
  EncodedPrompt word = made(conversation, turn, {letter, think_});
  const EncodedPrompt number = made(conversation, turn, {figure, think_});
  auto length = static_cast<std::size_t>(common_prefix(word.tokens, number.tokens));
  if (word.message_ends.empty()) return {};
  length = std::min(length, static_cast<std::size_t>(word.message_ends.back()));
  word.tokens.resize(length);
  return std::move(word.tokens);
}

namespace {

constexpr std::size_t tag_bytes_max = 40;

[[noreturn]] void refuse_name(const std::string& text) { throw Error(ErrorKind::usage, text); }

/// One line of at most this many columns.
std::string shortened(const std::string& text, int columns) {
  return cut_to_columns(sanitized_line(text.substr(0, 400)), columns);
}

void check_name(const std::string& name) {
  if (name.size() > tag_bytes_max || name.find_first_of(" \t\n") != std::string::npos) {
    refuse_name(fmt::format("/fork: a name is one word of at most {} bytes", tag_bytes_max));
  }
  if (name.find_first_not_of("0123456789") == std::string::npos) {
    refuse_name("/fork: '" + name + "' is a number, which /goto would take for a turn");
  }
}

std::string free_name(const Conversation& conversation) {
  for (int i = 1;; ++i) {
    std::string name = fmt::format("fork-{}", i);
    if (!conversation.branches().contains(name)) return name;
  }
}

std::string branches_at(const Conversation& conversation, std::int32_t turn) {
  std::string names;
  for (const auto& [name, end] : conversation.branches()) {
    if (end != turn) continue;
    const bool is_here = name == conversation.branch();
    names.append(names.empty() ? "" : " ").append(is_here ? "*" : "").append(name);
  }
  return names;
}

}  // namespace

std::string place_text(const Conversation& conversation) {
  const std::int32_t here = conversation.here();
  const std::string branch = "branch " + conversation.branch() + ", ";
  if (here == 0) return branch + "at the beginning";
  return branch + fmt::format("after turn {}: {}", here,
                              shortened(conversation.turn(here).exchange.message, 60));
}

void check_back(std::string_view command, std::int32_t count, std::int32_t messages) {
  if (count <= messages) return;
  refuse_name(fmt::format("{}: the conversation has {}, so N is {}, not {}", command,
                          counted(messages, "message"),
                          messages == 1 ? "1" : fmt::format("1 to {}", messages), count));
}

std::string undo(Conversation& conversation, std::int32_t count) {
  const std::int32_t here = conversation.here();
  const auto spoken = static_cast<std::int32_t>(conversation.path(here).size());
  if (spoken == 0) {
    refuse_name(conversation.turns() == 0
                    ? "/undo: nothing has been said yet"
                    : "/undo: this is the beginning; /checkpoints lists what was taken back");
  }
  check_back("/undo", count, spoken);
  const std::int32_t first = conversation.before(count - 1);
  conversation.go_to(conversation.before(count));
  return fmt::format("took back {} of {} messages, from: {}; /goto {} brings them back", count,
                     spoken, shortened(conversation.turn(first).exchange.message, 60), here);
}

std::string fork(Conversation& conversation, const std::string& name) {
  const std::string chosen = name.empty() ? free_name(conversation) : name;
  check_name(chosen);
  const std::string left = conversation.branch();
  if (!conversation.fork(chosen)) refuse_name("/fork: there is a branch " + chosen + " already");
  return place_text(conversation) + fmt::format("; /goto {} goes back", left);
}

std::string go_to(Conversation& conversation, const std::string& place) {
  if (place.empty()) refuse_name("/goto: where to? /checkpoints lists turns and branches");
  if (const auto turn = parse_number<std::int32_t>(place)) {
    if (*turn < 0 || *turn > conversation.turns()) {
      refuse_name(fmt::format("/goto: there is no turn {}, the last one is {}", *turn,
                              conversation.turns()));
    }
    conversation.go_to(*turn);
  } else if (!conversation.switch_to(place)) {
    refuse_name("/goto: there is no branch '" + place.substr(0, tag_bytes_max) +
                "'; /checkpoints lists them");
  }
  return place_text(conversation);
}

namespace {

/// A turn where it is drawn: the lines before its number, and those before what follows it.
struct TreeRow {
  std::int32_t turn;
  std::string before, below;
};

std::vector<TreeRow> drawn_tree(const Conversation& conversation, bool utf8) {
  std::vector<std::vector<std::int32_t>> next(static_cast<std::size_t>(conversation.turns()) + 1);
  for (std::int32_t turn = 1; turn <= conversation.turns(); ++turn) {
    next[static_cast<std::size_t>(conversation.turn(turn).parent)].push_back(turn);
  }
  std::vector<TreeRow> rows, open = {{0, "", ""}};
  while (!open.empty()) {
    const TreeRow row = open.back();
    open.pop_back();
    if (row.turn != 0) rows.push_back(row);
    const auto& turns = next[static_cast<std::size_t>(row.turn)];
    for (std::size_t i = turns.size(); i > 0; --i) {
      const bool is_last = i == turns.size();
      std::string corner = is_last ? "`- " : "|- ", line = is_last ? "   " : "|  ";
      if (utf8) corner = is_last ? "\u2514\u2500 " : "\u251C\u2500 ";
      if (utf8 && !is_last) line = "\u2502  ";
      if (turns.size() == 1) corner = line = "";
      open.push_back({turns[i - 1], row.below + corner, row.below + line});
    }
  }
  return rows;
}

}  // namespace

std::string checkpoints_text(const Conversation& conversation, const Resumable& resumable,
                             bool utf8) {
  if (conversation.turns() == 0) return "nothing has been said yet\n";
  Table table{.columns = columns_of("turn|>tokens|>kept|branch|message")};
  for (const TreeRow& row : drawn_tree(conversation, utf8)) {
    const Exchange& exchange = conversation.turn(row.turn).exchange;
    table.rows.push_back({row.before + fmt::format("{}", row.turn),
                          fmt::format("{}", exchange.tokens),
                          resumable ? fmt::format("{}", resumable(row.turn)) : "",
                          branches_at(conversation, row.turn), shortened(exchange.message, 40)});
  }
  if (!resumable) {
    table.columns.erase(table.columns.begin() + 2);
    for (auto& row : table.rows) row.erase(row.begin() + 2);
  }
  std::string text = plain_text(table);
  if (conversation.here() == 0) text += place_text(conversation) + "\n";
  return text;
}

namespace {

/// The longest that a finished entry may have to wait: too short to notice.
constexpr std::chrono::milliseconds slice_time{40};

}  // namespace

PrefillAhead::~PrefillAhead() {
  try {
    end();
  } catch (...) {
    // A destructor has no caller to report to.
  }
}

void PrefillAhead::begin(std::function<std::vector<TokenId>()> tokens) {
  end();
  asked_ = std::move(tokens);
}

bool PrefillAhead::work() {
  try {
    if (asked_) {
      submit();
      return running_.has_value();
    }
    if (!running_) return false;
    engine_.step();
    return running_.has_value();
  } catch (const Error&) {
    // The prompt itself will meet the same error and report it.
  } catch (const std::bad_alloc&) {
  }
  end();
  return false;
}

void PrefillAhead::submit() {
  Request request;
  request.prompt = std::exchange(asked_, nullptr)();
  request.prefill_only = true;
  request.chunk_time = slice_time;
  const auto tokens = static_cast<std::int64_t>(request.prompt.size());
  if (tokens == 0 || tokens >= engine_.length_max()) return;
  running_ = engine_.submit(std::move(request), *this);
}

void PrefillAhead::end() {
  asked_ = nullptr;
  if (running_) engine_.cancel(*running_);
  running_.reset();
}

void PrefillAhead::on_finish(RequestId, std::int32_t, const Completion& completion) {
  running_.reset();
  tokens_ += completion.usage.prefilled_tokens;
}

}  // namespace hyb::app
