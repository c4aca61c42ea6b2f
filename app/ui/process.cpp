#include "app/ui/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "app/ui/terminal.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/thread.h"

namespace hyb::app {
namespace {

// Mutable globals, because a signal handler can be given nothing else.
std::atomic<int> stop{0};
std::atomic<int> hasty{0};
std::atomic<int> patient{0};
std::atomic<const char*> stop_note{nullptr};
std::atomic<int> changes{0};
std::atomic<void (*)()> last_words{nullptr};
static_assert(std::atomic<int>::is_always_lock_free);
static_assert(std::atomic<void (*)()>::is_always_lock_free);
static_assert(std::atomic<const char*>::is_always_lock_free);

void say_last_words() {
  if (void (*restore_terminal)() = last_words.load()) restore_terminal();
}

void on_stop(int signal) {
  const int wanted = signal == SIGINT ? SIGINT : SIGTERM;
  const bool is_again = stop.exchange(wanted) == wanted;
  if (is_again && wanted == SIGINT && patient.load() > 0) return;
  if (is_again || hasty.load() > 0) {
    say_last_words();
    ::_exit(128 + wanted);
  }
  const char* const note = stop_note.load();
  const int error = errno;  // of the code that this interrupts
  if (note != nullptr) static_cast<void>(!::write(STDERR_FILENO, note, std::strlen(note)));
  errno = error;
}

void on_change(int) { changes.fetch_add(1); }

// The action is back to the default one by now (SA_RESETHAND), and blocked only until we return.
void on_crash(int signal) {
  say_last_words();
  ::raise(signal);
}

std::atomic<bool> was_out_of_memory{false};
std::terminate_handler usual_end = nullptr;

void note_out_of_memory() {
  was_out_of_memory.store(true);
  throw std::bad_alloc();
}

// There may be no exception to ask: while one is thrown a joinable thread was destroyed, or there
// was no memory for the exception itself.
[[noreturn]] void on_terminate() {
  if (!was_out_of_memory.load()) {
    usual_end();
    std::abort();
  }
  say_last_words();
  constexpr std::string_view line =
      "hyb: error: out of memory; ask for less with --memory or --context\n";
  static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
  ::_exit(static_cast<int>(ErrorKind::memory));
}

// The stack grows when it is used; where the address space is full by then (ulimit -v) that is a
// segmentation fault. Only the page at its end takes memory.
[[gnu::noinline]] void grow_stack() {
  rlimit limit{};
  constexpr std::size_t enough = std::size_t{1} << 20;
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur < 2 * enough) return;
  volatile char end[enough];
  static_cast<void>(end[0] = 0);
}

// Before static objects are made, which take memory.
[[gnu::constructor(101)]] void prepare_for_want_of_memory() {
  std::set_new_handler(note_out_of_memory);
  usual_end = std::set_terminate(on_terminate);
  grow_stack();
}

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction current {};
  if (::sigaction(signal, nullptr, &current) != 0) return;
  const bool ignored = current.sa_handler == SIG_IGN;  // nohup, or a job in the background
  const bool taken = current.sa_handler != SIG_DFL;    // a sanitizer's
  if (handler != SIG_IGN && (ignored || taken)) return;
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

// A file opened later must not become stdout by chance. Writing to these fails with EBADF, as
// writing to a closed descriptor would.
void fill_closed_descriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    if (::open("/dev/null", O_RDONLY) != descriptor) return;  // then there is no helping it
  }
}

enum class Written { all, reader_gone, failed };

Written write_while_read(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {  // a non-blocking descriptor that a parent handed us
      pollfd room{descriptor, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return errno == EPIPE ? Written::reader_gone : Written::failed;
    }
  }
  return Written::all;
}

}  // namespace

ProcessGuard::ProcessGuard() {
  fill_closed_descriptors();
  for (const int signal : {SIGPIPE, SIGXFSZ}) handle(signal, SIG_IGN, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) handle(signal, on_stop, 0);
  for (const int signal : {SIGWINCH, SIGCONT}) handle(signal, on_change, SA_RESTART);
  for (const int signal : {SIGABRT, SIGSEGV, SIGQUIT}) {
    handle(signal, on_crash, static_cast<int>(SA_RESETHAND));
  }
}

ProcessGuard::~ProcessGuard() { say_last_words(); }

int ProcessGuard::exit_code(int code) const {
  const int signal = stop_signal();
  return signal != 0 ? 128 + signal : code;
}

int stop_signal() { return stop.load(); }
void clear_stop_signal() { stop.store(0); }

StopAtOnce::StopAtOnce() {
  hasty.fetch_add(1);
  if (stop.load() != 0) ::raise(stop.load());
}
StopAtOnce::~StopAtOnce() { hasty.fetch_sub(1); }

StopOnce::StopOnce() { patient.fetch_add(1); }
StopOnce::~StopOnce() { patient.fetch_sub(1); }

void set_stop_note(const char* note) { stop_note.store(note); }

int terminal_changes() { return changes.load(); }
void set_last_words(void (*restore_terminal)()) { last_words.store(restore_terminal); }

bool write_stdout(const char* text, unsigned long size) {
  const Written written = write_while_read(STDOUT_FILENO, {text, size});
  if (written == Written::failed) {
    throw Error(ErrorKind::runtime, std::string("stdout: cannot write: ") + std::strerror(errno));
  }
  return written == Written::all;
}

bool write_stdout(std::string_view text) { return write_stdout(text.data(), text.size()); }

void write_stderr(std::string_view text) {
  write_stderr_as_is(fitted_to(Stream::error, sanitized(text)));
}
void write_note(std::string_view text) {
  if (log::is_shown(log::Level::info)) write_stderr(text);
}
void write_stderr_as_is(std::string_view text) { write_while_read(STDERR_FILENO, text); }

namespace {

/// Time spent waiting for a descriptor.
class Waiting {
 public:
  explicit Waiting(const StreamLimits& limits) : limits_(&limits) {}

  /// Returns when there is something to read, or once it was reported that there is not.
  void wait_for(int descriptor) {
    if (is_reported_) return;
    const auto begin = std::chrono::steady_clock::now();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limits_->patience - spent_);
    pollfd input{descriptor, POLLIN, 0};
    const int ready = ::poll(&input, 1, static_cast<int>(left.count()));
    spent_ += std::chrono::steady_clock::now() - begin;
    if (ready != 0 && spent_ < limits_->patience) return;
    log::warning(limits_->waiting);
    is_reported_ = true;
  }

 private:
  const StreamLimits* limits_;
  std::chrono::nanoseconds spent_{0};
  bool is_reported_ = false;
};

}  // namespace

bool is_pipe(const std::string& name) {
  std::error_code ignored;
  return std::filesystem::is_fifo(name, ignored);
}

std::string read_stream(int descriptor, const char* name, const StreamLimits& limits) {
  const auto check = [&](std::size_t bytes) {
    if (bytes <= limits.bytes_max) return;
    throw Error(ErrorKind::model, fmt::format("{}: has more than {} bytes, the most that are read",
                                              name, limits.bytes_max));
  };
  struct stat about {};
  if (::fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode)) {
    const off_t at = std::max<off_t>(::lseek(descriptor, 0, SEEK_CUR), 0);
    check(static_cast<std::size_t>(std::max<off_t>(about.st_size - at, 0)));
  }
  std::string text;
  std::array<char, 65536> piece;
  Waiting waiting(limits);
  for (;;) {
    waiting.wait_for(descriptor);
    const ssize_t count = ::read(descriptor, piece.data(), piece.size());
    if (count == 0) return text;
    if (count > 0) {
      text.append(piece.data(), static_cast<std::size_t>(count));
      check(text.size());
    } else if (errno == EAGAIN) {  // a non-blocking descriptor that a parent handed us
      pollfd input{descriptor, POLLIN, 0};
      ::poll(&input, 1, -1);
    } else if (errno != EINTR || stop_signal() != 0) {
      throw Error(ErrorKind::runtime,
                  std::string(name) + ": cannot be read: " + std::strerror(errno));
    }
  }
}

BackgroundWork::BackgroundWork(std::function<bool()> work) : work_(std::move(work)) {
  if (!work_) return;
  thread_ = start_thread("background work", [this] { run(); });
}

BackgroundWork::~BackgroundWork() {
  is_stopped_ = true;
  if (thread_.joinable()) thread_.join();
}

void BackgroundWork::run() {
  try {
    while (!is_stopped_ && work_()) {
    }
  } catch (...) {
    error_ = std::current_exception();
  }
}

void BackgroundWork::stop() {
  is_stopped_ = true;
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace hyb::app
