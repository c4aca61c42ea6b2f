#include "core/engine/event_queue.h"

#include <utility>

#include "core/base/scoped_flag.h"

namespace hyb {

void EventQueue::add_text(Sink& sink, RequestId request, std::int32_t choice, std::string text) {
  if (text.empty()) return;
  events_.push_back({.sink = &sink,
                     .request = request,
                     .choice = choice,
                     .text = std::move(text),
                     .completion = std::nullopt});
}

void EventQueue::add_end(Sink& sink, RequestId request, std::int32_t choice,
                         Completion completion) {
  events_.push_back({.sink = &sink,
                     .request = request,
                     .choice = choice,
                     .text = {},
                     .completion = std::move(completion)});
}

void EventQueue::deliver() {
  if (in_delivery_) return;
  const ScopedFlag delivering(in_delivery_);
  while (!events_.empty()) {
    const Event event = std::move(events_.front());
    events_.pop_front();
    if (event.completion) {
      event.sink->on_finish(event.request, event.choice, *event.completion);
    } else {
      event.sink->on_text(event.request, event.choice, event.text);
    }
  }
}

}  // namespace hyb
