// Real processes: a runner in a worker, ends of workers and of engines.
#include "core/workers/worker_launcher.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "core/workers/remote_runner.h"
#include "core/workers/step_server.h"
#include "tests/support/error_text.h"
#include "tests/support/quiet_log.h"

namespace worker_launcher_test {

using namespace hyb;
using namespace std::chrono_literals;
using hyb::testing::contains;
using hyb::testing::error_text;

namespace {

const WorkerIdentity one_model = {{"model", "this"}};
const Capacity few = {.memory = {}, .step_tokens = 8, .sequences_max = 2, .vocab = 50};

/// What processes share.
struct Shared {
  std::atomic<pid_t> worker{0}, launcher{0};
  std::atomic<int> steps{0};
  std::atomic<bool> holds{false};  ///< a step takes until this is over

  struct Unmap {
    void operator()(Shared* shared) const { munmap(shared, sizeof(Shared)); }
  };
  static std::unique_ptr<Shared, Unmap> make() {
    void* const at =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    return std::unique_ptr<Shared, Unmap>(new (at) Shared);
  }
};

/// A step of it says its first token, plus what the process had in memory when it was forked.
class CountingRunner final : public Runner {
 public:
  CountingRunner(Shared& shared, std::int32_t known) : shared_(&shared), known_(known) {}
  Capacity capacity() const override { return few; }
  StepResult run(const Step& step) override {
    ++shared_->steps;
    while (shared_->holds) std::this_thread::sleep_for(1ms);
    if (step.spans[0].tokens[0] == TokenId{49}) throw Error(ErrorKind::memory, "no room for 49");
    StepResult result;
    result.sampled.emplace_back().token = TokenId{index(step.spans[0].tokens[0]) + known_};
    return result;
  }
  void read(ViewId, std::int32_t, std::span<std::byte>) override {}
  void write(ViewId, std::int32_t, std::span<const std::byte>) override {}

 private:
  Shared* shared_;
  std::int32_t known_;
};

struct Made {
  Made(Shared& shared, std::int32_t known) : own(shared, known) {
    if (known < 0) throw Error(ErrorKind::memory, "no room for a runner");
  }
  Runner& runner() { return own; }
  const WorkerIdentity& identity() const { return one_model; }
  CountingRunner own;
};

/// An engine's side.
struct Lane {
  explicit Lane(Shared& all, std::int32_t known_now = 5, const WorkerLimits& limits = {},
                std::chrono::milliseconds patience = 10s)
      : shared(&all),
        known(known_now),
        launcher(
            [this](int socket) {
              shared->worker = ::getpid();
              shared->launcher = ::getppid();
              serve_steps(socket, [this] { return std::make_unique<Made>(*shared, known); });
            },
            patience),
        runner([this] { return launcher.start(); }, few, one_model, limits) {}

  std::int32_t run(std::int32_t token) {
    const std::vector<TokenId> tokens = {TokenId{token}};
    Step step;
    step.spans.resize(1);
    step.spans[0].tokens = tokens;
    runner.launch(step);
    return index(runner.wait().sampled.at(0).token);
  }

  Shared* shared;
  std::int32_t known;
  WorkerLauncher launcher;
  RemoteRunner runner;
};

/// "S" and the like; empty: there is no such process.
std::string state_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t end = text.rfind(')');
  return end == std::string::npos ? "" : text.substr(end + 2, 1);
}

/// A zombie has no memory.
bool has_ended(pid_t process) {
  const std::string state = state_of(process);
  return state.empty() || state == "Z";
}

/// The launchers of this process.
std::vector<pid_t> launchers() {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string text;
    std::getline(file, text);
    const std::size_t end = text.rfind(") ");
    if (end == std::string::npos || text.find("(hyb-launcher") == std::string::npos) continue;
    if (std::stoi(text.substr(end + 4)) == ::getpid()) found.push_back(std::stoi(text));
  }
  return found;
}

/// The second thread of a worker that was killed may keep the socket open for a moment longer, so
/// that it takes a step.
std::int32_t run_again_if_lost(Lane& lane, std::int32_t token) {
  try {
    return lane.run(token);
  } catch (const StepLost&) {
    return lane.run(token);
  }
}

template <typename Condition>
bool comes_true(const Condition& condition, std::chrono::milliseconds within) {
  const auto until = std::chrono::steady_clock::now() + within;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

}  // namespace

TEST_SUITE("core/workers/worker_launcher") {
  TEST_CASE("steps run in another process, which has what was in memory when it was forked") {
    const auto shared = Shared::make();
    pid_t worker = 0, launcher = 0;
    {
      Lane lane(*shared);
      lane.known = 30;  // no process sees that
      CHECK(lane.run(2) == 7);
      CHECK(lane.run(3) == 8);
      worker = shared->worker;
      launcher = shared->launcher;
      CHECK(worker != ::getpid());
      CHECK(launcher != ::getpid());
      CHECK(shared->steps == 2);
      CHECK(error_text([&] { lane.run(49); }) == "no room for 49");
      CHECK(lane.run(4) == 9);
      CHECK(shared->worker == worker);
    }
    CHECK(has_ended(worker));
    CHECK(state_of(launcher).empty());
    CHECK(launchers().empty());
  }

  TEST_CASE("a worker that is killed amid a step is replaced, and so is one without a step") {
    const testing::QuietLog quiet;
    const auto shared = Shared::make();
    Lane lane(*shared);
    shared->holds = true;
    std::thread killer([&] {
      comes_true([&] { return shared->steps == 1; }, 10s);
      ::kill(shared->worker, SIGKILL);
    });
    CHECK_THROWS_AS(lane.run(1), StepLost);
    killer.join();
    const pid_t first = shared->worker;
    CHECK(state_of(first).empty());
    shared->holds = false;
    CHECK(lane.run(1) == 6);
    CHECK(shared->worker != first);
    ::kill(shared->worker, SIGKILL);
    REQUIRE(comes_true([&] { return has_ended(shared->worker); }, 10s));
    CHECK(run_again_if_lost(lane, 2) == 7);
    CHECK(lane.runner.deaths() == 2);
  }

  TEST_CASE("a worker that is stopped is killed and replaced") {
    const testing::QuietLog quiet;
    const auto shared = Shared::make();
    Lane lane(*shared, 5, {.silence = 2500ms});
    CHECK(lane.run(1) == 6);
    ::kill(shared->worker, SIGSTOP);
    CHECK_THROWS_AS(lane.run(1), StepLost);
    CHECK(state_of(shared->worker).empty());
    shared->holds = true;  // longer than may be silent, but with signs of life
    std::thread releaser([&] {
      std::this_thread::sleep_for(4s);
      shared->holds = false;
    });
    CHECK(lane.run(2) == 7);
    releaser.join();
  }

  TEST_CASE("Ctrl-C and the like are the engine's") {
    const auto shared = Shared::make();
    Lane lane(*shared);
    CHECK(lane.run(1) == 6);
    const pid_t worker = shared->worker;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGQUIT}) {
      ::kill(worker, signal);
      ::kill(shared->launcher, signal);
    }
    CHECK(lane.run(1) == 6);
    CHECK(shared->worker == worker);
  }

  TEST_CASE("what keeps a worker from being made is reported") {
    const auto shared = Shared::make();
    CHECK(error_text([&] { Lane lane(*shared, -1); }) == "no room for a runner");
    CHECK(has_ended(shared->worker));
    CHECK(state_of(shared->launcher).empty());
  }

  TEST_CASE("an engine that is killed leaves no process") {
    const auto shared = Shared::make();
    for (const bool is_amid_step : {false, true}) {
      CAPTURE(is_amid_step);
      shared->steps = 0;
      shared->holds = is_amid_step;
      const pid_t engine = fork();
      if (engine == 0) {
        Lane lane(*shared);
        lane.run(1);
        ++shared->steps;
        for (;;) pause();
      }
      REQUIRE(comes_true([&] { return shared->steps == (is_amid_step ? 1 : 2); }, 20s));
      const pid_t worker = shared->worker, launcher = shared->launcher;
      CHECK_FALSE(has_ended(worker));
      if (is_amid_step) ::kill(launcher, SIGSTOP);
      ::kill(engine, SIGKILL);
      waitpid(engine, nullptr, 0);
      CHECK(comes_true([&] { return has_ended(worker) && has_ended(launcher); }, 1s));
    }
  }

  TEST_CASE("a launcher that is killed, or stopped and needed, is replaced again and again") {
    const testing::QuietLog quiet;
    const auto shared = Shared::make();
    Lane lane(*shared, 5, {}, 500ms);
    lane.known = 30;  // copies of copies do not see that, either
    CHECK(lane.run(1) == 6);
    for (int round = 0; round < 6; ++round) {
      CAPTURE(round);
      const bool is_stopped = round % 2 == 1;
      const pid_t worker = shared->worker, launcher = shared->launcher;
      ::kill(launcher, is_stopped ? SIGSTOP : SIGKILL);
      if (is_stopped) ::kill(worker, SIGKILL);
      REQUIRE(comes_true([&] { return has_ended(worker); }, 10s));
      CHECK(run_again_if_lost(lane, 1) == 6);
      CHECK(state_of(launcher).empty());
      CHECK(launchers().size() == 2);
    }
  }

  TEST_CASE("a launcher that waits for its turn is replaced; without any there is an error") {
    const testing::QuietLog quiet;
    const auto shared = Shared::make();
    Lane lane(*shared, 5, {}, 500ms);
    const auto other = [&] {
      std::vector<pid_t> all = launchers();
      std::erase(all, shared->launcher);
      return all.at(0);
    };
    const pid_t first = other(), worker = shared->worker;
    ::kill(first, SIGKILL);
    REQUIRE(comes_true([&] { return has_ended(first); }, 10s));
    CHECK(lane.run(1) == 6);
    CHECK(launchers().size() == 2);
    ::kill(other(), SIGKILL);
    ::kill(shared->launcher, SIGKILL);
    REQUIRE(comes_true([&] { return has_ended(worker); }, 10s));
    const auto run = [&] { run_again_if_lost(lane, 1); };
    CHECK(contains(error_text(run), "the processes that start it have ended"));
    CHECK(launchers().empty());
    CHECK(contains(error_text(run), "the processes that start it have ended"));
  }

  TEST_CASE("launchers that are all lost before the first worker are an error") {
    const testing::QuietLog quiet;
    for (const int signal : {SIGSTOP, SIGKILL}) {
      CAPTURE(signal);
      WorkerLauncher launcher([](int) {}, 500ms);
      std::vector<pid_t> both = launchers();
      REQUIRE(both.size() == 2);
      std::sort(both.begin(), both.end());  // the copy was made later
      ::kill(both[0], signal);
      ::kill(both[1], SIGSTOP);
      REQUIRE(comes_true([&] { return has_ended(both[0]) || state_of(both[0]) == "T"; }, 10s));
      REQUIRE(comes_true([&] { return state_of(both[1]) == "T"; }, 10s));
      const auto start = [&] { launcher.start(); };
      CHECK(contains(error_text(start), "the processes that start it have ended or do not answer"));
      CHECK(launchers().empty());
      CHECK(contains(error_text(start), "the processes that start it have ended or do not answer"));
    }
  }

  TEST_CASE("a launcher that is stopped does not hold up the end") {
    const testing::QuietLog quiet;
    const auto shared = Shared::make();
    {
      Lane lane(*shared, 5, {}, 500ms);
      ::kill(shared->launcher, SIGSTOP);
    }
    // It gives up memory and descriptors, which is waited for, before it is a zombie.
    CHECK(comes_true([&] { return has_ended(shared->worker); }, 1s));
    CHECK(launchers().empty());
  }
}

}  // namespace worker_launcher_test
