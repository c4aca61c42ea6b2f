#include "app/chat/answer.h"

#include <algorithm>
#include <utility>

#include "app/ui/process.h"
#include "app/ui/sanitizer.h"

namespace hyb::app {
namespace {

class StdoutSink : public Sink {
 public:
  explicit StdoutSink(const AnswerView& view)
      : sanitizes_(view.sanitizes), dims_(view.dims_thoughts), scanner_(view.start) {}

  void on_text(RequestId, std::int32_t, std::string_view text) override {
    if (dims_) {
      show(scanner_.push(text));
    } else {
      write(shown(text));
    }
  }

  void on_finish(RequestId, std::int32_t, const Completion& completion) override {
    if (dims_) show(scanner_.finish());
    if (sanitizes_) write(sanitizer_.flush());
    // An answer without text is a line too: whoever reads lines counts them.
    if (!ends_line_) write("\n");
    answer_.completion = completion;
    has_finished_ = true;
  }

  bool has_finished() const { return has_finished_; }
  Answer& answer() { return answer_; }

 private:
  std::string shown(std::string_view text) {
    return sanitizes_ ? sanitizer_.push(text) : std::string(text);
  }

  void show(const std::vector<ThoughtScanner::Piece>& pieces) {
    for (const auto& [text, is_thought] : pieces) write(shown(text), is_thought);
  }

  /// Each text ends what it began: nothing that ends the program leaves a dim terminal behind.
  void write(const std::string& text, bool is_dim = false) {
    if (text.empty() || has_failed_) return;
    has_failed_ = true;  // also when write_stdout throws: one error is enough
    answer_.reader_is_gone = !write_stdout(is_dim ? "\x1b[2m" + text + "\x1b[m" : text);
    has_failed_ = answer_.reader_is_gone;
    ends_line_ = text.ends_with('\n');
  }

  bool sanitizes_, dims_;
  ThoughtScanner scanner_;
  Sanitizer sanitizer_;
  bool ends_line_ = false;
  bool has_failed_ = false;
  bool has_finished_ = false;
  Answer answer_;
};

/// Takes the request back when an error leaves: the sink is about to go.
class Withdrawal {
 public:
  Withdrawal(Engine& engine, RequestId request, const StdoutSink& sink)
      : engine_(&engine), request_(request), sink_(&sink) {}
  ~Withdrawal() {
    if (sink_->has_finished()) return;
    try {
      engine_->cancel(request_);
      // Had it ended already, its last event is still to be delivered.
      while (!sink_->has_finished() && engine_->step()) continue;
    } catch (...) {
      // The error that brought us here says more than this one could.
    }
  }
  Withdrawal(const Withdrawal&) = delete;
  Withdrawal& operator=(const Withdrawal&) = delete;

 private:
  Engine* engine_;
  RequestId request_;
  const StdoutSink* sink_;
};

}  // namespace

Answer stream_answer(Engine& engine, Request request, const AnswerView& view) {
  StdoutSink sink(view);
  const RequestId id = engine.submit(std::move(request), sink);
  const Withdrawal withdrawal(engine, id, sink);
  while (!sink.has_finished()) {
    sink.answer().was_stopped = stop_signal() != 0;
    if (sink.answer().was_stopped || sink.answer().reader_is_gone) {
      engine.cancel(id);
    } else {
      engine.step();
    }
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
