#include "core/workers/step_server.h"

#include <poll.h>
#include <unistd.h>

#include <new>
#include <string>

#include "core/base/error.h"
#include "core/base/thread.h"

namespace hyb {
namespace {

/// An engine that is alive takes a message within this time.
constexpr std::chrono::hours send_time{1};
/// A wait without end, looked at now and then.
constexpr std::chrono::hours step_time{1};

Message message_of(std::uint64_t epoch, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return failure_message(epoch, known.kind(), known.what());
  } catch (const std::bad_alloc&) {
    return failure_message(epoch, ErrorKind::memory, "prefill worker: out of memory");
  } catch (const std::exception& other) {
    return failure_message(epoch, ErrorKind::runtime,
                           std::string("prefill worker: ") + other.what());
  }
}

}  // namespace

StepServer::StepServer(int socket, std::chrono::milliseconds beat) : socket_(socket), beat_(beat) {
  thread_ = start_thread("prefill worker", [this] { watch(); });
}

StepServer::~StepServer() {
  is_ending_ = true;
  thread_.join();
}

/// The engine's end is closed by itself, or by its death; then what runs here is of no use.
void StepServer::watch() {
  const Message heartbeat = heartbeat_message(0);
  while (!is_ending_) {
    pollfd engine = {.fd = socket_.descriptor(), .events = POLLRDHUP, .revents = 0};
    if (::poll(&engine, 1, static_cast<int>(beat_.count())) > 0) ::_exit(0);
    if (!is_busy_) continue;
    const std::unique_lock lock(sending_, std::try_to_lock);
    if (lock.owns_lock()) socket_.send_if_room(heartbeat);
  }
}

bool StepServer::send(const Message& message) {
  const std::lock_guard lock(sending_);
  return socket_.send(message, send_time);
}

void StepServer::serve(Runner& runner, const WorkerIdentity& identity) {
  is_busy_ = false;
  if (!send(hello_message(identity))) return;
  for (;;) {
    const Received received = socket_.receive(step_time);
    if (received.state == Received::State::ended) return;
    if (received.state == Received::State::message) run(runner, received.message);
  }
}

void StepServer::run(Runner& runner, const Message& message) {
  const std::uint64_t epoch = read_header(message).epoch;
  is_busy_ = true;
  Message answer;
  try {
    const OwnedStep step(message);
    answer = result_message(epoch, runner.run(step.step()));
  } catch (...) {
    answer = message_of(epoch, std::current_exception());
  }
  is_busy_ = false;
  send(answer);
}

void StepServer::refuse(const std::exception_ptr& error) {
  is_busy_ = false;
  send(message_of(0, error));
}

}  // namespace hyb
