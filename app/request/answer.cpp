#include "app/request/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <nlohmann/json.hpp>

#include "app/model/digest.h"
#include "app/options/options.h"
#include "app/request/tools.h"
#include "app/ui/markdown.h"
#include "app/ui/process.h"
#include "app/ui/terminal.h"
#include "app/ui/text.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "core/text/unicode.h"

namespace hyb::app {
namespace {

Json token_json(const Tokenizer& tokenizer, TokenId token, float logprob) {
  const std::string own = tokenizer.bytes_of(token);
  Json bytes = Json::array();
  for (const char byte : own) bytes.push_back(static_cast<unsigned char>(byte));
  std::string text;  // what is a part of a character only becomes U+FFFD
  Utf8Stream characters;
  characters.push(own, text);
  characters.flush(text);
  return {{"token", text}, {"id", index(token)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
}

bool is_omitted(const Tokenizer& tokenizer, TokenId token) {
  return tokenizer.is_special(token) && tokenizer.decode(std::span(&token, 1), true).empty();
}

/// All but the token that ended the answer, which is none of its text.
std::span<const TokenEvent> events_of(const Completion& completion, const Tokenizer& tokenizer) {
  std::span<const TokenEvent> events = completion.events;
  const bool has_end = completion.reason == FinishReason::stop && !events.empty() &&
                       is_omitted(tokenizer, events.back().token);
  return events.first(events.size() - (has_end ? 1 : 0));
}

Json logprobs_json(const Completion& completion, const Tokenizer& tokenizer) {
  if (completion.events.empty()) return nullptr;
  Json content = Json::array();
  for (const TokenEvent& event : events_of(completion, tokenizer)) {
    Json token = token_json(tokenizer, event.token, event.logprob);
    token["top_logprobs"] = Json::array();
    for (const TokenLogprob& likely : event.top) {
      token["top_logprobs"].push_back(token_json(tokenizer, likely.token, likely.logprob));
    }
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}};
}

/// A token as completions name it: of a part of a character its bytes, "bytes:\\xe2\\x82".
std::string token_name(const Tokenizer& tokenizer, TokenId token) {
  const std::string own = tokenizer.bytes_of(token);
  if (is_well_formed(own)) return own;
  std::string name = "bytes:";
  for (const char byte : own) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return name;
}

/// The lists of OpenAI's completions, beside `content`.
Json with_lists(Json logprobs, const Completion& completion, const Tokenizer& tokenizer) {
  if (logprobs.is_null()) return logprobs;
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    logprobs[list] = Json::array();
  }
  std::ptrdiff_t offset = 0;
  Utf8Stream characters;
  for (const TokenEvent& event : events_of(completion, tokenizer)) {
    const std::string name = token_name(tokenizer, event.token);
    Json top = Json::object();
    for (const TokenLogprob& likely : event.top) {
      top.emplace(token_name(tokenizer, likely.token), likely.logprob);
    }
    top.emplace(name, event.logprob);
    logprobs["tokens"].push_back(name);
    logprobs["token_logprobs"].push_back(event.logprob);
    logprobs["top_logprobs"].push_back(std::move(top));
    logprobs["text_offset"].push_back(offset);
    std::string text;
    if (!is_omitted(tokenizer, event.token)) characters.push(tokenizer.bytes_of(event.token), text);
    offset +=
        std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; });
  }
  return logprobs;
}

Json message_json(const ResponseHead& head, std::size_t index, SplitAnswer split) {
  if (!split.content.empty() && !split.call.empty()) split.content += "\n\n";
  Json message = {{"role", "assistant"}, {"content", split.content + split.call}};
  if (split.reasoning) message["reasoning_content"] = std::move(*split.reasoning);
  if (split.calls.empty()) return message;
  if (message["content"] == "") message["content"] = nullptr;
  for (std::size_t i = 0; i < split.calls.size(); ++i) {
    const auto& [name, arguments] = split.calls[i];
    const Hash128 id = hash_of(fmt::format("{} {} {}", head.id, index, i));
    message["tool_calls"].push_back({{"id", "call_" + hex(id).substr(0, 24)},
                                     {"type", "function"},
                                     {"function", {{"name", name}, {"arguments", arguments}}}});
  }
  return message;
}

Json choice_json(const ResponseHead& head, std::size_t index, const Completion& completion,
                 const Tokenizer& tokenizer) {
  Json choice = {{"index", index}};
  bool calls = false;
  if (head.kind == AnswerKind::chat) {
    SplitAnswer split = split_answer(completion.text, head.start);
    calls = !split.calls.empty() && completion.reason == FinishReason::stop;
    choice["message"] = message_json(head, index, std::move(split));
  } else {
    choice["text"] = completion.text;
  }
  Json logprobs = logprobs_json(completion, tokenizer);
  choice["logprobs"] = head.kind == AnswerKind::chat
                           ? std::move(logprobs)
                           : with_lists(std::move(logprobs), completion, tokenizer);
  choice["finish_reason"] = calls ? "tool_calls" : name_of(completion.reason);
  return choice;
}

}  // namespace

std::string drafts_text(const SpeculationStats& stats) {
  const DraftCounts all = stats.total();
  std::string shares;
  for (const double share : stats.accepted_shares()) {
    shares += fmt::format("{}{:.1f}", shares.empty() ? "" : ", ", 100 * share);
  }
  const std::string branches =
      stats.branch_drafts > 0
          ? fmt::format(", in {} of {} steps in a branch", stats.branches_taken, all.steps)
          : "";
  return fmt::format(
      "drafts {} of {} accepted (by position {} %{}), {:.1f} tokens a step, made in {:.2f} s",
      all.accepted, all.accepted + all.rejected, shares, branches, all.acceptance_length(),
      stats.drafting_seconds);
}

Json response_json(const ResponseHead& head, std::span<const Completion> completions,
                   const Tokenizer& tokenizer) {
  Json choices = Json::array();
  std::int64_t generated = 0, prefilled = 0;
  DraftCounts drafts;
  for (std::size_t i = 0; i < completions.size(); ++i) {
    choices.push_back(choice_json(head, i, completions[i], tokenizer));
    generated += completions[i].usage.completion_tokens;
    prefilled += completions[i].usage.prefilled_tokens;
    drafts += completions[i].usage.drafts;
  }
  // The choices share one prompt: the first one's counts are its own.
  const Usage first = completions.empty() ? Usage{} : completions[0].usage;
  Json usage = {{"prompt_tokens", first.prompt_tokens},
                {"completion_tokens", generated},
                {"total_tokens", first.prompt_tokens + generated},
                {"prompt_tokens_details", {{"cached_tokens", first.reused_tokens}}},
                {"reused_tokens", first.reused_tokens},
                {"reused_from", first.reused_from ? Json(name_of(*first.reused_from)) : Json()},
                {"prefilled_tokens", prefilled}};
  if (first.resumed_packed) usage["reused_precision"] = word_of(words::snapshots, Precision::int8);
  if (drafts.steps > 0) {
    usage["completion_tokens_details"] = {{"accepted_prediction_tokens", drafts.accepted},
                                          {"rejected_prediction_tokens", drafts.rejected}};
  }
  return {{"id", head.id},
          {"object", head.kind == AnswerKind::chat ? "chat.completion" : "text_completion"},
          {"created", head.created_s},
          {"model", head.model},
          {"choices", std::move(choices)},
          {"usage", std::move(usage)}};
}

namespace {

class StdoutSink : public Sink {
 public:
  StdoutSink(const AnswerView& view, ProgressLine& progress)
      : progress_(&progress),
        sanitizes_(view.sanitizes),
        wraps_(view.wraps),
        shows_markdown_(view.shows_markdown),
        thoughts_(view.thoughts),
        opening_(view.thoughts == ThoughtView::whole ? view.start.opening : ""),
        has_thought_(view.start.may_think && !view.start.opening.empty()),
        is_behind_thought_(has_thought_),
        scanner_(view.start),
        calls_(view.start.calls),
        heard_(view.heard) {}

  void on_text(RequestId, std::int32_t, std::string_view text) override {
    if (heard_) heard_(text);
    if (!opening_.empty()) write(shown(std::exchange(opening_, {})));
    scans() ? show(scanner_.push(text)) : write(shown(text));
  }

  void on_finish(RequestId, std::int32_t, const Completion& completion) override {
    if (scans()) show(scanner_.finish());
    if (sanitizes_) write(sanitizer_.flush());
    write_rest();
    // An answer without text is a line too: readers may count lines. An error is no answer.
    if (!ends_line_ && (has_text_ || completion.reason != FinishReason::error)) write("\n");
    answer_.completion = completion;
    has_finished_ = true;
  }

  /// All that came was left out.
  bool hid_all() const {
    return thoughts_ == ThoughtView::hidden && has_thought_ && !has_answer_ &&
           !answer_.completion.tokens.empty();
  }

  bool has_finished() const { return has_finished_; }
  Answer& answer() { return answer_; }

 private:
  bool scans() const {
    return thoughts_ == ThoughtView::dimmed || thoughts_ == ThoughtView::hidden ||
           calls_.form != nullptr || shows_markdown_;
  }

  std::string shown(std::string_view text) {
    return sanitizes_ ? sanitizer_.push(text) : std::string(text);
  }

  void show(const std::vector<AnswerScanner::Piece>& pieces) {
    for (const auto& [text, part] : pieces) {
      const bool is_said = part == AnswerPart::answer || part == AnswerPart::call;
      if (part == AnswerPart::call && calls_.form != nullptr) {
        show_calls(text);
      } else if (thoughts_ != ThoughtView::hidden) {
        const bool is_dim = thoughts_ == ThoughtView::dimmed;
        write(shown(is_said ? behind_call(text) : text), is_said  ? Text::said
                                                         : is_dim ? Text::dim
                                                                  : Text::other);
      } else if (is_said) {
        has_call_ = has_call_ || part == AnswerPart::call;
        write(shown(behind_call(begun(text))));
      } else {
        has_thought_ = true;
        is_behind_thought_ = !has_call_;
      }
    }
  }

  /// Each on a line.
  void show_calls(std::string_view text) {
    has_answer_ = is_behind_call_ = true;
    is_behind_thought_ = false;
    for (const ToolCall& call : calls_in(text, calls_)) {
      write_rest();
      write(shown((has_text_ && !ends_line_ ? "\n" : "") + call_text(call) + "\n"), Text::other);
    }
  }

  /// White space between calls is left out.
  std::string_view behind_call(std::string_view text) {
    if (is_behind_call_) text = trim_left(text);
    is_behind_call_ = is_behind_call_ && text.empty();
    return text;
  }

  /// Trims the start of an answer as split_answer() does: after a thought, the white space between
  /// both goes too; without one, the answer stays as the model gave it.
  std::string begun(std::string_view text) {
    if (is_behind_thought_) text = trim_left(text);
    if (text.empty()) return {};
    const bool is_next = std::exchange(is_behind_thought_, false) && has_answer_;
    has_answer_ = true;
    return std::string(is_next ? "\n\n" : "").append(text);
  }

  enum class Text : std::uint8_t { said, other, dim };

  /// Each text ends what it began: however the program ends, the terminal is not left dim.
  void write(const std::string& text, Text kind = Text::said) {
    if (!wraps_ && !shows_markdown_) return write_through(text, kind == Text::dim);
    if (kind != waiting_) write_rest();
    waiting_ = kind;
    const int columns = terminal_columns(Stream::output);
    const bool is_marked = shows_markdown_ && kind == Text::said;
    write_through(is_marked ? markdown_.push(text, columns) : wrap_.push(text, columns),
                  kind == Text::dim);
  }

  /// Writes what was held back.
  void write_rest() {
    write_through(markdown_.flush(), false);
    write_through(wrap_.flush(), waiting_ == Text::dim);
  }

  void write_through(const std::string& text, bool is_dim) {
    if (text.empty() || has_failed_) return;
    progress_->clear();
    has_failed_ = true;  // also when write_stdout throws: one error is enough
    answer_.stdout_is_closed = !write_stdout(is_dim ? "\x1b[2m" + text + "\x1b[m" : text);
    has_failed_ = answer_.stdout_is_closed;
    ends_line_ = text.ends_with('\n');
    has_text_ = true;
  }

  ProgressLine* progress_;
  bool sanitizes_;
  bool wraps_, shows_markdown_;
  WordWrap wrap_;
  MarkdownView markdown_;
  Text waiting_ = Text::said;  ///< what these hold back
  ThoughtView thoughts_;
  std::string opening_;  ///< still to be written before the answer
  bool has_thought_;
  bool is_behind_thought_;   ///< what is said next is the first after one, or after a header
  bool has_call_ = false;    ///< nothing is taken out of it but its channel
  bool has_answer_ = false;  ///< something other than the thought came
  bool is_behind_call_ = false;
  AnswerScanner scanner_;
  CallTerms calls_;
  std::function<void(std::string_view)> heard_;
  Sanitizer sanitizer_;
  bool ends_line_ = false;
  bool has_text_ = false;
  bool has_failed_ = false;
  bool has_finished_ = false;
  Answer answer_;
};

/// Takes the request back when an error leaves: the sink is about to go.
class CancelGuard {
 public:
  CancelGuard(Engine& engine, RequestId request, const std::function<bool()>& is_done)
      : engine_(&engine), request_(request), is_done_(&is_done) {}
  ~CancelGuard() {
    set_stop_note(nullptr);
    if ((*is_done_)()) return;
    try {
      engine_->cancel(request_);
      // Had it ended already, its last event is still to be delivered.
      while (!(*is_done_)() && engine_->step()) continue;
    } catch (...) {
      // The error that brought us here says more than this one could.
    }
  }
  CancelGuard(const CancelGuard&) = delete;
  CancelGuard& operator=(const CancelGuard&) = delete;

 private:
  Engine* engine_;
  RequestId request_;
  const std::function<bool()>* is_done_;
};

/// After what is on the screen, with the cursor put back: what comes next takes it away.
constexpr const char* stop_note =
    "\x1b"
    "7 stopping ...\x1b"
    "8";
constexpr std::string_view clear_stop_note = "\x1b[J";

/// The time of a step that a person waits for and may stop meanwhile.
constexpr std::chrono::milliseconds watched_chunk_time{300};

}  // namespace

AnswerView stdout_view(const Environment& environment, std::optional<bool> shows_thoughts) {
  const bool has_terminal = is_terminal(Stream::output);
  AnswerView view = {.sanitizes = has_terminal, .wraps = has_terminal};
  if (!shows_thoughts.value_or(has_terminal)) {
    view.thoughts = ThoughtView::hidden;
  } else if (!has_terminal) {
    view.thoughts = ThoughtView::whole;
  } else if (wants_colour(Stream::output, environment)) {
    view.thoughts = ThoughtView::dimmed;
  }
  return view;
}

ProgressLine answer_progress() {
  return ProgressLine(read_environment(), std::chrono::nanoseconds{0}, patience);
}

void run_request(Engine& engine, Request request, Sink& sink, ProgressLine& progress,
                 const std::function<bool()>& is_done, const std::function<bool()>& is_unwanted) {
  const auto tokens = static_cast<std::int32_t>(request.prompt.size());
  const bool is_watched = can_move_cursor(Stream::error, read_environment());
  if (is_watched) request.chunk_time = watched_chunk_time;
  const RequestId id = engine.submit(std::move(request), sink);
  const CancelGuard guard(engine, id, is_done);
  if (is_watched) set_stop_note(stop_note);
  while (!is_done()) {
    if (is_unwanted()) {
      if (is_watched) write_stderr_as_is(clear_stop_note);
      engine.cancel(id);
      continue;
    }
    const std::int32_t done = engine.prompt_progress(id);
    done < tokens ? progress.show(fmt::format("reading {} of {}", done, tokens)) : progress.clear();
    engine.step();
  }
}

Answer stream_answer(Engine& engine, Request request, const AnswerView& view) {
  ProgressLine progress = answer_progress();
  StdoutSink sink(view, progress);
  const SpeculationStats before = engine.usage().speculation;
  run_request(
      engine, std::move(request), sink, progress, [&] { return sink.has_finished(); },
      [&] {
        sink.answer().was_stopped = stop_signal() != 0;
        return sink.answer().was_stopped || sink.answer().stdout_is_closed;
      });
  sink.answer().speculation = engine.usage().speculation - before;
  if (sink.hid_all()) {
    log::warning(
        "the answer is empty: it ended within its thought; more tokens (-n) let it continue, "
        "--thoughts show shows it");
  }
  return std::move(sink.answer());
}

OwnTurn own_turn(const Completion& completion, const std::vector<TokenId>& stop_tokens,
                 const Tokenizer& tokenizer) {
  std::vector<TokenId> tokens = completion.tokens;
  const auto is_stop = [&](TokenId token) {
    return std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end();
  };
  while (!tokens.empty() && is_stop(tokens.back())) tokens.pop_back();
  if (tokenizer.decode(tokens, true) != completion.text) return {};
  return {completion.text, std::move(tokens)};
}

}  // namespace hyb::app
