#include "app/request/prompt.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "app/request/generation_config.h"
#include "app/request/text_input.h"
#include "app/request/tools.h"
#include "app/ui/process.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "core/text/unicode.h"

namespace hyb::app {
namespace {

void add_once(std::vector<TokenId>& tokens, TokenId token) {
  if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
}

/// The end-of-answer tokens that files name.
class StopTokens {
 public:
  /// Of eos_token_id: a number or a list of them.
  void add(const Json& config, const std::string& path) {
    const auto found = config.find("eos_token_id");
    if (found == config.end() || found->is_null()) return;
    if (!found->is_array()) return add_id(*found, *found, path);
    for (const Json& id : *found) add_id(id, *found, path);
  }

  /// Those that the model and its tokenizer have. Others are dropped: no answer can end with them.
  /// Throws Error(model) where only such ones are named: no answer would end.
  std::vector<TokenId> take(std::int32_t vocab, const std::optional<Tokenizer>& tokenizer) const {
    const auto exists = [&](TokenId token) {
      return index(token) < vocab && (!tokenizer || !tokenizer->piece(token).empty());
    };
    std::vector<TokenId> tokens;
    for (const Named& named : named_) {
      if (exists(named.token)) add_once(tokens, named.token);
    }
    if (tokenizer && tokenizer->eos() && exists(*tokenizer->eos())) {
      add_once(tokens, *tokenizer->eos());
    }
    for (const Named& named : named_) {
      if (exists(named.token)) continue;
      const std::string text = fmt::format("{}: eos_token_id {} is no token of the vocabulary",
                                           named.path, index(named.token));
      if (tokens.empty()) throw Error(ErrorKind::model, text + ", so no answer would end");
      log::warning(text + "; it is ignored");
    }
    return tokens;
  }

 private:
  struct Named {
    TokenId token;
    std::string path;
  };

  void add_id(const Json& id, const Json& all, const std::string& path) {
    const bool is_id = id.is_number_integer() && id >= 0 && id <= INT32_MAX;
    if (!is_id) {
      throw Error(ErrorKind::model,
                  fmt::format("{}: eos_token_id must be a whole number from 0 to {} or a list of "
                              "them, is {}",
                              path, INT32_MAX, excerpt(to_text(all))));
    }
    named_.push_back({TokenId{id.get<std::int32_t>()}, path});
  }

  std::vector<Named> named_;
};

Json read_json(const ModelSource& source, const std::string& file) {
  const auto text = source.read(file);
  if (!text) return Json::object();
  Json json = parse_json(*text, source.path_of(file), {.python_numbers = true});
  if (!json.is_object()) {
    throw Error(ErrorKind::model, source.path_of(file) + ": the top level is not an object");
  }
  return json;
}

[[noreturn]] void refuse_without_template(const ModelSource& source) {
  const std::string names = source.chat_template_names();
  throw Error(ErrorKind::model,
              fmt::format("{}: the model has no {}, so the format of its prompts is unknown; {}; "
                          "run and batch continue plain text with --raw",
                          source.name(),
                          names.empty() ? "chat template" : "default among its chat templates",
                          names.empty() ? "--chat-template FILE gives it one"
                                        : "--chat-template names one of " + names));
}

}  // namespace

ModelTexts read_texts(const ModelSource& source) {
  ModelTexts texts;
  texts.tokenizer = source.tokenizer();
  read_generation_config(source, texts);
  if (const auto found = source.chat_template()) {
    texts.chat_template = ChatTemplate::parse(found->text, found->name);
    if (const auto tools = source.tool_template()) {
      texts.chat_template->use_with_tools(ChatTemplate::parse(tools->text, tools->name));
    }
  }
  return texts;
}

void read_generation_config(const ModelSource& source, ModelTexts& texts) {
  texts.generation_config = read_json(source, "generation_config.json");
  StopTokens stops;
  stops.add(texts.generation_config, source.path_of("generation_config.json"));
  const Json config = read_json(source, "config.json");
  stops.add(config, source.path_of("config.json"));
  // Models of text and pictures have those of the text inside.
  const auto inner = config.find("text_config");
  if (inner != config.end() && inner->is_object()) {
    stops.add(*inner, source.path_of("config.json"));
  }
  const std::int32_t rows = source.config().i("vocab_size");
  texts.stop_tokens = stops.take(rows, texts.tokenizer);
  texts.banned_tokens = banned_tokens(
      texts.generation_config, texts.tokenizer ? std::min(rows, texts.tokenizer->size()) : rows);
}

const Tokenizer& need_tokenizer(const ModelTexts& texts, const ModelSource& source) {
  if (texts.tokenizer) return *texts.tokenizer;
  const bool has_other = source.folder() && is_listed(*source.folder() / "tokenizer.model");
  throw Error(ErrorKind::model,
              source.path_of("tokenizer.json") +
                  ": is missing; without it there is no text in or out" +
                  (has_other ? ". There is a tokenizer.model, which is not read; transformers "
                               "writes the other: "
                               "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
                             : ""));
}

const ChatTemplate& need_chat_template(const ModelTexts& texts, const ModelSource& source) {
  if (!texts.chat_template) refuse_without_template(source);
  return *texts.chat_template;
}

void need_chat_template(const ModelSource& source) {
  if (!source.chat_template()) refuse_without_template(source);
}

namespace {

/// A member of tool_calls. The arguments stay what the model wrote.
Json tool_call_of(std::string_view message) {
  const ToolCall call = harmony_call(message);
  return {{"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

}  // namespace

Json assistant_message(std::string_view text, const AnswerStart& start, bool takes_reasoning) {
  Json message = {{"role", "assistant"}, {"content", start.opening + std::string(text)}};
  if (!takes_reasoning && start.markers.is_in_content) return message;
  SplitAnswer split = split_answer(text, start);
  if (!split.reasoning && start.markers.is_in_content) return message;
  const bool has_call = !split.call.empty();
  if (has_call) message["tool_calls"] = Json::array({tool_call_of(split.call)});
  if (takes_reasoning && split.reasoning && !(has_call && !split.content.empty())) {
    message["reasoning_content"] = std::move(*split.reasoning);
  }
  message["content"] = std::move(split.content);
  return message;
}

namespace {

Json variables_of(const Tokenizer& tokenizer, const Json& asked) {
  Json variables = asked.is_object() ? asked : Json::object();
  const auto name = [&](const char* key, const std::optional<TokenId>& token) {
    if (!variables.contains(key) && token) variables[key] = std::string(tokenizer.piece(*token));
  };
  name("bos_token", tokenizer.bos());
  name("eos_token", tokenizer.eos());
  name("pad_token", tokenizer.pad());
  return variables;
}

/// True or false; nothing where it is not said. chat_template_kwargs win over all others.
std::optional<bool> flag_of(const Json& variables, const char* name) {
  const Json* value = member_of(variables, name);
  if (const Json* arguments = member_of(variables, "chat_template_kwargs")) {
    if (const Json* wins = member_of(*arguments, name)) value = wins;
  }
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    throw Error(ErrorKind::usage,
                fmt::format("{}: is true or false, got {}", name, excerpt(to_text(*value))));
  }
  return value->get<bool>();
}

/// Marks the place where an answer goes on, as transformers does it: its space shows whether the
/// template keeps white space there.
constexpr std::string_view goes_on_here = "qzxvjhere ";

/// The text of the last message that the answer goes on with: its content, or the last part of it.
std::string& text_to_continue(Json& messages) {
  const auto refuse = [] [[noreturn]] (const char* text) {
    throw Error(ErrorKind::usage, std::string("continue_final_message: ") + text);
  };
  Json* message = messages.is_array() && !messages.empty() ? &messages.back() : nullptr;
  if (message == nullptr || !message->is_object() || !message->contains("role") ||
      (*message)["role"] != "assistant") {
    refuse("the last message is not the assistant's");
  }
  Json* content = message->contains("content") ? &(*message)["content"] : nullptr;
  if (content != nullptr && content->is_array() && !content->empty() &&
      content->back().is_object() && content->back().contains("text")) {
    content = &content->back()["text"];
  }
  if (content == nullptr || !content->is_string()) refuse("the last message has no text");
  return content->get_ref<std::string&>();
}

/// The conversation up to where the text of its last message ends.
Rendered render_begun(const ChatTemplate& chat_template, Json messages, const Json& variables) {
  std::string& text = text_to_continue(messages);
  const std::string wanted(trim(text));
  text += goes_on_here;
  Rendered rendered = chat_template.render(messages, variables);
  const std::string whole = rendered.text();
  const std::string_view mark = trim(goes_on_here);
  std::vector<RenderedPiece>& pieces = rendered.pieces;
  const auto has_mark = [&](const RenderedPiece& piece) {
    return piece.source == TextSource::assistant && piece.text.find(mark) != std::string::npos;
  };
  while (!pieces.empty() && !has_mark(pieces.back())) pieces.pop_back();
  if (pieces.empty() || whole.find(wanted) == std::string::npos) {
    throw Error(
        ErrorKind::usage,
        "continue_final_message: the chat template does not show the last message as it is");
  }
  std::string& last = pieces.back().text;
  last.resize(last.rfind(mark));
  const bool keeps_space = whole.substr(whole.rfind(mark)).starts_with(goes_on_here);
  for (; !keeps_space && !pieces.empty(); pieces.pop_back()) {
    std::string& end = pieces.back().text;
    end.resize(end.find_last_not_of(white_space) + 1);
    if (!end.empty()) break;
  }
  if (!pieces.empty() && pieces.back().text.empty()) pieces.pop_back();
  return rendered;
}

constexpr EncodeOptions as_rendered = {.add_special_tokens = false, .parse_special = true};

TextPiece text_piece(const RenderedPiece& piece) {
  return {.text = piece.text,
          .marked = piece.source != TextSource::tmpl,
          .allow_thinking_markers = piece.source == TextSource::assistant};
}

/// Collects pieces of text and, between them, ids that are taken as they are.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add(const TextPiece& piece) { pending_.push_back(piece); }

  void add(std::span<const TokenId> tokens) {
    encode_pending();
    out_.tokens.insert(out_.tokens.end(), tokens.begin(), tokens.end());
  }

  /// The next piece begins a text that other prompts do not have.
  void mark() { marks_.push_back(pending_.size()); }

  EncodedPrompt take() {
    encode_pending();
    return std::move(out_);
  }

 private:
  void encode_pending() {
    const std::span<const TextPiece> pieces(pending_);
    const auto tokens = tokenizer_.encode(pieces, as_rendered);
    for (const std::size_t mark : marks_) {
      // A word may go across the join: what precedes it decides about its tokens only as
      // far as they are the same without the rest.
      const auto before = tokenizer_.encode(pieces.first(mark), as_rendered);
      end_message(out_.tokens.size() + static_cast<std::size_t>(common_prefix(before, tokens)));
    }
    out_.tokens.insert(out_.tokens.end(), tokens.begin(), tokens.end());
    pending_.clear();
    marks_.clear();
  }

  void end_message(std::size_t length) {
    const auto end = static_cast<std::int32_t>(length);
    const std::int32_t last = out_.message_ends.empty() ? 0 : out_.message_ends.back();
    if (end > last) out_.message_ends.push_back(end);
  }

  const Tokenizer& tokenizer_;
  std::vector<TextPiece> pending_;
  std::vector<std::size_t> marks_;  ///< indices of pending_
  EncodedPrompt out_;
};

/// The text of the first user message; empty where it is not a plain text.
std::string_view first_user_text(const Json& messages) {
  for (const Json& message : messages) {
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string() || *role != "user") continue;
    const auto content = message.find("content");
    const bool is_text = content != message.end() && content->is_string();
    return is_text ? trim(content->get_ref<const std::string&>()) : std::string_view();
  }
  return {};
}

/// Where the texts of the first and of the last user message begin, as far as it is known.
std::pair<std::size_t, std::size_t> user_pieces(const Rendered& rendered, const Json& messages) {
  const std::string_view wanted = first_user_text(messages);
  std::size_t first = rendered.pieces.size(), last = first;
  for (std::size_t i = 0; i < rendered.pieces.size(); ++i) {
    const RenderedPiece& piece = rendered.pieces[i];
    if (piece.source != TextSource::person) continue;
    last = i;
    const bool is_first = first == rendered.pieces.size() && !wanted.empty();
    if (is_first && trim(piece.text) == wanted) first = i;
  }
  return {first, last};
}

/// The own turn that says `text`, at `next` or later; null: none.
const OwnTurn* own_turn_of(std::span<const OwnTurn> own_turns, std::size_t& next,
                           std::string_view text) {
  for (std::size_t i = next; i < own_turns.size(); ++i) {
    const OwnTurn& own = own_turns[i];
    if (own.tokens.empty() || text.size() != own.opening.size() + own.text.size()) continue;
    if (!text.starts_with(own.opening) || !text.ends_with(own.text)) continue;
    next = i + 1;
    return &own;
  }
  return nullptr;
}

}  // namespace

Rendered render_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                     const ChatPrompt& prompt) {
  Json variables = variables_of(tokenizer, prompt.variables);
  const std::optional<bool> begins = flag_of(variables, "add_generation_prompt");
  const bool goes_on = flag_of(variables, "continue_final_message").value_or(false);
  variables.erase("continue_final_message");
  variables["add_generation_prompt"] = begins.value_or(!goes_on);
  if (!goes_on) return chat_template.render(prompt.messages, variables);
  if (begins.value_or(false)) {
    throw Error(ErrorKind::usage,
                "continue_final_message: an answer is either begun or gone on with, so "
                "add_generation_prompt is false");
  }
  return render_begun(chat_template, prompt.messages, variables);
}

void set_start(Request& request, const AnswerStart& start) {
  const auto spells_end = [&](const std::string& stop) {
    return stop.find(start.markers.end) != std::string::npos;
  };
  const bool ends_a_thought = !start.markers.has_headers;  // with headers it ends every message
  if (ends_a_thought && std::ranges::any_of(request.stop, spells_end)) return;
  request.start = start;
  request.start.calls = {};  // stop strings count in calls as in other text
}

EncodedPrompt encode_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                          const ChatPrompt& prompt) {
  const Rendered rendered = render_chat(chat_template, tokenizer, prompt);
  const auto [first, last] = user_pieces(rendered, prompt.messages);
  Encoder encoder(tokenizer);
  std::size_t next_own = 0;
  for (std::size_t i = 0; i < rendered.pieces.size(); ++i) {
    const RenderedPiece& piece = rendered.pieces[i];
    if (i == first || i == last) encoder.mark();
    const OwnTurn* own = piece.source == TextSource::assistant
                             ? own_turn_of(prompt.own_turns, next_own, piece.text)
                             : nullptr;
    if (own != nullptr) {
      if (!own->opening.empty()) {
        encoder.add({.text = own->opening, .marked = true, .allow_thinking_markers = true});
      }
      encoder.add(own->tokens);
    } else {
      encoder.add(text_piece(piece));
    }
  }
  EncodedPrompt encoded = encoder.take();
  const ThoughtMarkers markers = thought_markers_of(tokenizer);
  std::string opening = opening_of(rendered, markers);
  // Where the content of an answer goes on, no thought begins.
  const bool has_content = !rendered.pieces.empty() && opening.empty() &&
                           rendered.pieces.back().source == TextSource::assistant;
  encoded.start = {.may_think = !has_content,
                   .opening = std::move(opening),
                   .markers = markers,
                   .calls = call_terms(prompt, chat_template, tokenizer)};
  if (has_content) {
    const AnswerStart whole = {.may_think = true, .markers = markers};
    encoded.start.begun = split_answer(rendered.pieces.back().text, whole).content;
  }
  if (encoded.tokens.empty()) {
    throw Error(ErrorKind::model,
                "the chat template makes an empty prompt of this conversation; hyb run --raw "
                "continues plain text without one");
  }
  return encoded;
}

std::vector<TokenId> encode_pieces(const Tokenizer& tokenizer,
                                   std::span<const RenderedPiece> pieces) {
  std::vector<TextPiece> texts;
  for (const RenderedPiece& piece : pieces) texts.push_back(text_piece(piece));
  return tokenizer.encode(texts, as_rendered);
}

std::string opening_of(const Rendered& rendered, const ThoughtMarkers& markers) {
  std::string behind;
  for (std::size_t i = rendered.pieces.size(); i-- > 0;) {
    const RenderedPiece& piece = rendered.pieces[i];
    const bool is_last = i + 1 == rendered.pieces.size();
    // What a person wrote begins no thought, and a past answer has ended with its turn.
    if (piece.source == TextSource::person) break;
    if (piece.source == TextSource::assistant && !is_last) break;
    const std::size_t begin = piece.text.rfind(markers.begin), end = piece.text.rfind(markers.end);
    const bool has_begin = begin != std::string::npos, has_end = end != std::string::npos;
    if (has_end && (!has_begin || end >= begin)) break;
    if (has_begin) return piece.text.substr(begin) + behind;
    behind.insert(0, piece.text);
  }
  return {};
}

std::vector<TokenId> encode_raw(const Tokenizer& tokenizer, std::string_view text,
                                bool allow_special) {
  auto tokens =
      tokenizer.encode(text, {.add_special_tokens = true, .parse_special = allow_special});
  const auto bos = tokenizer.bos();
  const bool is_double = bos && tokens.size() > 1 && tokens[0] == *bos && tokens[1] == *bos;
  if (is_double) tokens.erase(tokens.begin());
  return tokens;
}

bool spells_added_tokens(const Tokenizer& tokenizer, std::string_view text,
                         std::span<const TokenId> tokens) {
  if (text.find_first_of("<[") == std::string_view::npos) return false;  // so published ones begin
  const std::vector<TokenId> others = encode_raw(tokenizer, text, true);
  return !std::equal(tokens.begin(), tokens.end(), others.begin(), others.end());
}

void fit_prompt(std::vector<TokenId>& prompt, std::int32_t prompt_max, Truncate truncate) {
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (length <= prompt_max) return;
  const std::int64_t over = length - prompt_max;
  if (truncate == Truncate::refuse) {
    throw Error(ErrorKind::usage,
                fmt::format("the prompt has {} tokens, {} more than the limit of {}; shorten it, "
                            "raise --context or --memory, or cut it with --truncate left|right",
                            length, over, prompt_max));
  }
  if (truncate == Truncate::left) {
    prompt.erase(prompt.begin(), prompt.begin() + over);
  } else {
    prompt.resize(static_cast<std::size_t>(prompt_max));
  }
}

void check_messages(const Json& messages, const std::string& place) {
  const auto refuse = [&](const std::string& text) { throw Error(ErrorKind::usage, place + text); };
  if (!messages.is_array() || messages.empty()) refuse("messages: is a list of at least one");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    const auto has = [&](const char* name) {
      const auto found = message.find(name);
      return found != message.end() && !found->is_null();
    };
    if (!message.is_object() || !has("role") || !message["role"].is_string()) {
      refuse(fmt::format("messages[{}] is not an object with a role in text", i));
    }
    // An answer may be empty, calls alone, or end in its thought.
    constexpr const char* instead[] = {"content",           "tool_calls", "function_call",
                                       "reasoning_content", "reasoning",  "thinking"};
    const bool is_empty_answer = message["role"] == "assistant" && message.contains("content");
    if (!is_empty_answer && std::none_of(std::begin(instead), std::end(instead), has)) {
      refuse(fmt::format("messages[{}] has no content", i));
    }
  }
}

Json read_messages(const std::string& file) {
  const std::string name = file == "-" ? "stdin" : file;
  const std::string text = file == "-" ? read_stdin() : read_text_file(file, std::size_t{1} << 30);
  Json body = parse_json(text, name, {.bytes_max = std::size_t{1} << 30, .depth_max = 256});
  if (body.is_array()) body = Json::object({{"messages", std::move(body)}});
  if (body.is_object()) {
    for (const char* field : {"stream", "stream_options"}) body.erase(field);  // flags decide that
  }
  const auto messages = body.find("messages");
  if (!body.is_object() || messages == body.end()) {
    throw Error(ErrorKind::usage, name + ": neither an array of messages nor an object with one");
  }
  check_messages(*messages, name + ": ");
  return body;
}

Json question_body(const std::string& system, const std::string& text) {
  check_utf8(text, "the prompt");
  check_utf8(system, "the system prompt");
  Json messages = Json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", text}});
  return Json::object({{"messages", std::move(messages)}});
}

}  // namespace hyb::app
