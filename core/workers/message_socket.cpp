#include "core/workers/message_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace hyb {
namespace {

using SocketClock = std::chrono::steady_clock;

}  // namespace

MessageSocket::MessageSocket(int descriptor)
    : descriptor_(descriptor), partly_(message_header_bytes) {}

MessageSocket::~MessageSocket() { ::close(descriptor_); }

/// False: the time is over. What happens to the other side is an event, too.
bool MessageSocket::wait_for(short events, SocketClock::time_point until) const {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - SocketClock::now()).count();
    pollfd socket = {.fd = descriptor_, .events = events, .revents = 0};
    constexpr std::int64_t most = 1'000'000;
    const int ready = ::poll(&socket, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, most)));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (left <= 0) return false;
  }
}

bool MessageSocket::send(const Message& message, std::chrono::milliseconds patience) {
  const auto until = SocketClock::now() + patience;
  for (std::size_t sent = 0; sent < message.size();) {
    const ssize_t count = ::send(descriptor_, message.data() + sent, message.size() - sent,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      sent += static_cast<std::size_t>(count);
    } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait_for(POLLOUT, until)) return false;
    } else if (count == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

/// A message as small as a heartbeat is taken whole or not at all.
void MessageSocket::send_if_room(const Message& message) {
  static_cast<void>(
      ::send(descriptor_, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

/// Counts those of the header, and once that is there of the body as well.
std::size_t MessageSocket::bytes_wanted() const { return partly_.size() - filled_; }

Received MessageSocket::receive(std::chrono::milliseconds patience) {
  const auto until = SocketClock::now() + patience;
  for (;;) {
    if (bytes_wanted() == 0) {
      const MessageHeader header = read_header(
          std::span<const std::byte, message_header_bytes>(partly_.data(), message_header_bytes));
      const std::size_t whole = message_header_bytes + header.body_bytes;
      if (filled_ == whole) {
        filled_ = 0;
        return {.state = Received::State::message,
                .message = std::exchange(partly_, Message(message_header_bytes))};
      }
      // Read as much as has come, so that memory is taken for bytes that are there.
      constexpr std::size_t piece = std::size_t{1} << 20;
      partly_.resize(std::min(whole, filled_ + std::max(piece, filled_)));
    }
    const ssize_t count =
        ::recv(descriptor_, partly_.data() + filled_, bytes_wanted(), MSG_DONTWAIT);
    if (count > 0) {
      filled_ += static_cast<std::size_t>(count);
    } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait_for(POLLIN, until)) return {};
    } else if (count == 0 || errno != EINTR) {
      return {.state = Received::State::ended, .message = {}};
    }
  }
}

}  // namespace hyb
