#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "core/engine/request.h"

namespace hyb {

/// What sinks have yet to receive, in the order in which it came about.
class EventQueue {
 public:
  /// The sink outlives its last event. Empty texts are left out.
  void add_text(Sink& sink, RequestId request, std::int32_t choice, std::string text);
  void add_end(Sink& sink, RequestId request, std::int32_t choice, Completion completion);

  bool empty() const { return events_.empty(); }
  bool in_delivery() const { return in_delivery_; }

  /// Until there is none. A sink may add events, call this, which then does nothing, or throw: an
  /// event leaves the queue before it is delivered.
  void deliver();

 private:
  struct Event {
    Sink* sink;
    RequestId request;
    std::int32_t choice;
    std::string text;
    std::optional<Completion> completion;  ///< empty: it is a text
  };

  std::deque<Event> events_;
  bool in_delivery_ = false;
};

}  // namespace hyb
