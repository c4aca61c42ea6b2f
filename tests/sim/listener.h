#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/engine/engine.h"
#include "tests/sim/random.h"
#include "tests/sim/toy_runner.h"

namespace hyb::sim {

struct SinkFailure : std::runtime_error {
  SinkFailure() : std::runtime_error("the sink failed, as planned") {}
};

/// Records what it receives, and checks that it comes in order and once.
class Listener : public Sink {
 public:
  struct Heard {
    std::string text;
    std::optional<Completion> completion;
  };

  void on_text(RequestId request, std::int32_t choice, std::string_view text) override {
    const Inside inside(*this);
    Heard& heard = heard_[{request, choice}];
    if (text.empty()) throw Violation("a sink gets no empty text");
    if (heard.completion) throw Violation("text after the end");
    heard.text += text;
    after_event(request);
  }

  void on_finish(RequestId request, std::int32_t choice, const Completion& completion) override {
    const Inside inside(*this);
    Heard& heard = heard_[{request, choice}];
    if (heard.completion) throw Violation("an answer ends once");
    if (heard.text != completion.text) throw Violation("the emitted text is not the final text");
    heard.completion = completion;
    ++finished_;
    after_event(request);
  }

  /// Null: nothing was received for it.
  const Heard* find(RequestId request, std::int32_t choice) const {
    const auto found = heard_.find({request, choice});
    return found == heard_.end() ? nullptr : &found->second;
  }

  std::int64_t finished() const { return finished_; }

 protected:
  virtual void after_event(RequestId) {}

 private:
  /// One event at a time: what a sink does never calls it back before it has returned.
  struct Inside {
    explicit Inside(Listener& listener_) : listener(&listener_) {
      if (std::exchange(listener->inside_, true)) throw Violation("a sink is called from itself");
    }
    ~Inside() { listener->inside_ = false; }
    Listener* listener;
  };

  std::map<std::pair<RequestId, std::int32_t>, Heard> heard_;
  std::int64_t finished_ = 0;
  bool inside_ = false;
};

}  // namespace hyb::sim
