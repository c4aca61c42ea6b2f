#include "core/workers/worker_launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
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
  copy,   ///< makes another launcher, which gets the socket that comes with it
};

struct LauncherReply {
  int error;   ///< errno; 0: it was done
  int status;  ///< of `end`: as waitpid says
  pid_t copy;  ///< of `copy`
};

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

/// Does what the launcher does. It allocates nothing, so its memory stays that of the engine.
class Launcher {
 public:
  Launcher(int control, const WorkerLauncher::Body& body) : control_(control), body_(body) {}

  [[noreturn]] void run() {
    detach();
    while (const auto given = next_request(control_)) {
      LauncherReply reply{};
      if (given->request == LauncherRequest::copy) {
        reply.copy = copy_self();
        if (reply.copy < 0) reply.error = errno;
        if (reply.copy == 0) {
          use_control(given->descriptor);
          continue;
        }
      } else {
        reply.status = end_worker();
        if (given->request == LauncherRequest::start) reply.error = start_worker(given->descriptor);
      }
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
    use_control(control_);
  }

  /// All other descriptors but the first three are closed.
  void use_control(int socket) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // where it is stopped it does not see the socket's end
    constexpr int place = STDERR_FILENO + 1;
    if (socket != place) ::dup3(socket, place, O_CLOEXEC);
    control_ = place;
    ::closefrom(place + 1);
  }

  /// Does what fork() does, but the other one is the engine's child, too, and outlives this one. It
  /// has no worker.
  pid_t copy_self() {
    const auto copy = static_cast<pid_t>(
        ::syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    if (copy == 0) worker_ = 0;
    return copy;
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

std::string end_text(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("signal {}, {}", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  }
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorKind::runtime,
              "prefill worker: " + what + "; start again, or leave --disaggregate out");
}

/// Returns whether the other side has gone, within `patience`.
bool is_gone(int socket, std::chrono::milliseconds patience) {
  pollfd other = {.fd = socket, .events = 0, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&other, 1, static_cast<int>(patience.count()));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

}  // namespace

/// A launcher as the engine, whose child it is, has it.
class WorkerLauncher::Process {
 public:
  Process(pid_t process, int control) : process_(process), control_(control) {}
  /// Its worker ends with it, also where it is stopped.
  ~Process() {
    if (!has_ended()) ::kill(process_, SIGKILL);
    ::close(control_);
    wait_for_end(process_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  bool has_ended() const { return is_gone(control_, std::chrono::milliseconds(0)); }

  /// nullopt: it has ended, or does not answer. It gets a copy of `descriptor`.
  std::optional<LauncherReply> ask(LauncherRequest request, std::optional<int> descriptor,
                                   std::chrono::milliseconds patience) const {
    LauncherReply reply{};
    pollfd answer = {.fd = control_, .events = POLLIN, .revents = 0};
    if (!send_request(control_, request, descriptor)) return std::nullopt;
    int ready = 0;
    do {
      ready = ::poll(&answer, 1, static_cast<int>(patience.count()));
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0 || ::recv(control_, &reply, sizeof reply, MSG_DONTWAIT) != sizeof reply) {
      return std::nullopt;
    }
    return reply;
  }

 private:
  pid_t process_;
  int control_;
};

class WorkerLauncher::Forked final : public Worker {
 public:
  Forked(WorkerLauncher& launcher, int socket) : launcher_(&launcher), socket_(socket) {}
  ~Forked() override {
    try {
      if (!has_ended_) end();
    } catch (const Error&) {
      // No launcher is left, which the next start() says.
    }
  }
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;

  bool send(const Message& message, std::chrono::milliseconds patience) override {
    launcher_->need_next();
    return socket_.send(message, patience);
  }
  Received receive(std::chrono::milliseconds patience) override {
    return socket_.receive(patience);
  }
  std::string end() override {
    require(!std::exchange(has_ended_, true), "worker: it ends once");
    std::unique_ptr<Process>& launcher = launcher_->launcher_;
    if (launcher != nullptr) {
      const auto reply = launcher->ask(LauncherRequest::end, std::nullopt, launcher_->patience_);
      if (reply) return end_text(reply->status);
      launcher.reset();
    }
    // A process gives its memory up before its descriptors.
    if (!is_gone(socket_.descriptor(), launcher_->patience_)) fail("it does not end");
    launcher_->take_next();
    return "with the process that started it";
  }

 private:
  WorkerLauncher* launcher_;
  MessageSocket socket_;
  bool has_ended_ = false;
};

WorkerLauncher::WorkerLauncher(const Body& body, std::chrono::milliseconds patience)
    : patience_(patience) {
  const auto [own, other] = socket_pair(SOCK_SEQPACKET);
  const WorkerSignals signals;  // blocked in what is forked
  // A child would find a lock of the log taken for ever.
  pid_t process = 0;
  int error = 0;
  log::while_silent([&] {
    process = ::fork();
    error = errno;
  });
  if (process == 0) Launcher(other, body).run();
  ::close(other);
  if (process > 0) {
    launcher_ = std::make_unique<Process>(process, own);
    need_next();
    return;
  }
  ::close(own);
  throw Error(ErrorKind::runtime,
              fmt::format("prefill worker: no process can be started ({})", std::strerror(error)));
}

WorkerLauncher::~WorkerLauncher() = default;

/// The launcher was lost. Throws where its copy cannot take its place.
void WorkerLauncher::take_next() {
  launcher_ = std::move(next_);
  need_next();  // the copy may be lost as well
  if (launcher_ == nullptr) fail("the processes that start it have ended or do not answer");
  log::warning("prefill worker: the process that starts it was lost; a copy takes its place");
}

/// Where no copy can be made, this launcher is the last one.
void WorkerLauncher::need_next() {
  if (launcher_ == nullptr || (next_ != nullptr && !next_->has_ended())) return;
  next_.reset();
  const auto [own, other] = socket_pair(SOCK_SEQPACKET);
  const auto reply = launcher_->ask(LauncherRequest::copy, other, patience_);
  ::close(other);
  if (reply && reply->error == 0) {
    next_ = std::make_unique<Process>(reply->copy, own);
  } else {
    ::close(own);
    if (!reply) launcher_.reset();  // what it says later would be taken for another answer
  }
}

std::unique_ptr<Worker> WorkerLauncher::start() {
  if (launcher_ == nullptr) take_next();
  for (;;) {
    const auto [own, other] = socket_pair(SOCK_STREAM);
    const auto reply = launcher_->ask(LauncherRequest::start, other, patience_);
    ::close(other);
    if (reply && reply->error == 0) return std::make_unique<Forked>(*this, own);
    ::close(own);
    if (reply) fail(fmt::format("no process can be started ({})", std::strerror(reply->error)));
    take_next();
  }
}

}  // namespace hyb
