#pragma once

#include <chrono>
#include <cstddef>

#include "core/workers/worker.h"

namespace hyb {

/// One end of a pair of stream sockets that messages go through. One thread receives, and one
/// sends.
class MessageSocket {
 public:
  /// Closes it in the end.
  explicit MessageSocket(int descriptor);
  ~MessageSocket();
  MessageSocket(const MessageSocket&) = delete;
  MessageSocket& operator=(const MessageSocket&) = delete;

  int descriptor() const { return descriptor_; }

  /// Do what those of Worker do.
  bool send(const Message& message, std::chrono::milliseconds patience);
  Received receive(std::chrono::milliseconds patience);

  /// Sends it where there is room for all of it now; else not at all.
  void send_if_room(const Message& message);

 private:
  bool wait_for(short events, std::chrono::steady_clock::time_point until) const;
  std::size_t bytes_wanted() const;

  int descriptor_;
  Message partly_;          ///< the message that is being received
  std::size_t filled_ = 0;  ///< of partly_
};

}  // namespace hyb
