#include "core/workers/worker_launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/worker_signals.h"
#include "core/workers/message_socket.h"

namespace hyb {
namespace {

enum class LauncherRequest : std::uint8_t {
  start,  ///< forks a worker, which gets the socket that comes with it
  end,    ///< kills the worker and waits for its end
};

struct LauncherReply {
  int error;   ///< errno; 0: it was done
  int status;  ///< of `end`: as waitpid says
};

/// How long the launcher may take for a reply. Only a machine without memory takes seconds.
constexpr int reply_ms = 60'000;

std::pair<int, int> socket_pair(int type) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw Error(ErrorKind::runtime,
                fmt::format("prefill worker: no pair of sockets: {}", std::strerror(errno)));
  }
  return {ends[0], ends[1]};
}

/// One descriptor beside one byte, or none.
bool send_request(int control, LauncherRequest request, std::optional<int> descriptor) {
  iovec bytes = {.iov_base = &request, .iov_len = sizeof request};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (descriptor) {
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &*descriptor, sizeof(int));
  }
  return ::sendmsg(control, &message, MSG_NOSIGNAL) == sizeof request;
}

struct GivenRequest {
  LauncherRequest request;
  int descriptor;  ///< -1: none
};

/// nullopt: the engine has gone.
std::optional<GivenRequest> next_request(int control) {
  GivenRequest given = {.request = LauncherRequest::end, .descriptor = -1};
  iovec bytes = {.iov_base = &given.request, .iov_len = sizeof given.request};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  ssize_t count = 0;
  do {
    count = ::recvmsg(control, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count != sizeof given.request) return std::nullopt;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::memcpy(&given.descriptor, CMSG_DATA(header), sizeof(int));
  }
  return given;
}

int wait_for_end(pid_t process) {
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

/// What the launcher does. It allocates nothing, so its memory stays that of the engine.
class Launcher {
 public:
  Launcher(int control, const WorkerLauncher::Body& body) : control_(control), body_(body) {}

  [[noreturn]] void run() {
    detach();
    while (const auto given = next_request(control_)) {
      LauncherReply reply = {.error = 0, .status = end_worker()};
      if (given->request == LauncherRequest::start) reply.error = start_worker(given->descriptor);
      if (given->descriptor >= 0) ::close(given->descriptor);
      if (::send(control_, &reply, sizeof reply, MSG_NOSIGNAL) != sizeof reply) break;
    }
    end_worker();
    ::_exit(0);
  }

 private:
  /// From what is the engine's: its terminal, its files, what it does when it crashes.
  void detach() {
    ::prctl(PR_SET_NAME, "hyb-launcher");
    for (const int fault : {SIGSEGV, SIGABRT, SIGFPE, SIGILL}) std::signal(fault, SIG_DFL);
    const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(nothing, STDOUT_FILENO);
    constexpr int place = STDERR_FILENO + 1;
    if (control_ != place) ::dup3(control_, place, O_CLOEXEC);
    control_ = place;
    ::closefrom(place + 1);
  }

  /// errno; 0: it was forked.
  int start_worker(int socket) {
    const pid_t launcher = ::getpid();
    worker_ = ::fork();
    if (worker_ < 0) return errno;
    if (worker_ > 0) return 0;
    ::prctl(PR_SET_NAME, "hyb-worker");
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) ::_exit(1);  // it ended before it could be watched
    ::close(control_);
    body_(socket);
    ::_exit(0);
  }

  int end_worker() {
    if (worker_ <= 0) return 0;
    ::kill(worker_, SIGKILL);
    return wait_for_end(std::exchange(worker_, 0));
  }

  int control_;
  const WorkerLauncher::Body& body_;
  pid_t worker_ = 0;  ///< 0: none
};

std::string words_of(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("signal {}, {}", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  }
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

/// Throws Error(runtime) where the launcher does not answer, or could not.
LauncherReply ask(int control, LauncherRequest request, std::optional<int> descriptor) {
  const auto fail = [](const std::string& what) {
    throw Error(ErrorKind::runtime,
                "prefill worker: " + what + "; start again, or leave --disaggregate out");
  };
  LauncherReply reply{};
  pollfd answer = {.fd = control, .events = POLLIN, .revents = 0};
  if (!send_request(control, request, descriptor)) fail("the process that starts it has ended");
  int ready = 0;
  do {
    ready = ::poll(&answer, 1, reply_ms);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) fail("the process that starts it does not answer");
  if (::recv(control, &reply, sizeof reply, 0) != sizeof reply) {
    fail("the process that starts it has ended");
  }
  if (reply.error != 0) {
    fail(fmt::format("no process can be started ({})", std::strerror(reply.error)));
  }
  return reply;
}

class ForkedWorker final : public Worker {
 public:
  ForkedWorker(int control, int socket) : control_(control), socket_(socket) {}
  ~ForkedWorker() override {
    try {
      if (!has_ended_) end();
    } catch (const Error&) {
      // The launcher has ended, and with it the worker.
    }
  }
  ForkedWorker(const ForkedWorker&) = delete;
  ForkedWorker& operator=(const ForkedWorker&) = delete;

  bool send(const Message& message, std::chrono::milliseconds patience) override {
    return socket_.send(message, patience);
  }
  Received receive(std::chrono::milliseconds patience) override {
    return socket_.receive(patience);
  }
  std::string end() override {
    require(!std::exchange(has_ended_, true), "worker: it ends once");
    return words_of(ask(control_, LauncherRequest::end, std::nullopt).status);
  }

 private:
  int control_;
  MessageSocket socket_;
  bool has_ended_ = false;
};

}  // namespace

WorkerLauncher::WorkerLauncher(const Body& body) {
  const auto [own, other] = socket_pair(SOCK_SEQPACKET);
  control_ = own;
  const WorkerSignals signals;  // blocked in what is forked
  // A child would find a lock of the log taken for ever.
  int error = 0;
  log::while_silent([&] {
    launcher_ = ::fork();
    error = errno;
  });
  if (launcher_ == 0) Launcher(other, body).run();
  ::close(other);
  if (launcher_ > 0) return;
  ::close(control_);
  throw Error(ErrorKind::runtime,
              fmt::format("prefill worker: no process can be started ({})", std::strerror(error)));
}

WorkerLauncher::~WorkerLauncher() {
  ::close(control_);
  wait_for_end(launcher_);
}

std::unique_ptr<Worker> WorkerLauncher::start() {
  const auto [own, other] = socket_pair(SOCK_STREAM);
  auto worker = std::make_unique<ForkedWorker>(control_, own);
  try {
    ask(control_, LauncherRequest::start, other);
  } catch (...) {
    ::close(other);
    throw;
  }
  ::close(other);
  return worker;
}

}  // namespace hyb
