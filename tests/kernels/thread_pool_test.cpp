#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/io/mapped_file.h"
#include "kernels/queue.h"
#include "kernels/thread_pool.h"
#include "tests/support/files.h"

namespace thread_pool_test {

using namespace hyb::kernels;
namespace fs = std::filesystem;

namespace {

/// A made-up root folder with version 1's cpu hierarchy and version 2's.
class QuotaRoot : public hyb::testing::TemporaryFolder {
 public:
  explicit QuotaRoot(const std::string& memberships) {
    write("proc/self/cgroup", memberships);
    write("proc/self/mountinfo",
          "31 23 0:28 / /cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
          "32 23 0:29 / /unified rw - cgroup2 cgroup2 rw\n");
  }
};

}  // namespace

TEST_SUITE("kernels/cpu_quota") {
  TEST_CASE("version 2: the least of a group and its parents") {
    const QuotaRoot root("0::/a/b\n");
    root.write("unified/a/b/cpu.max", "250000 100000\n");
    CHECK(cpu_quota(root.path()) == 2.5);
    root.write("unified/a/cpu.max", "150000 100000\n");
    CHECK(cpu_quota(root.path()) == 1.5);
    root.write("unified/a/cpu.max", "max 100000\n");
    CHECK(cpu_quota(root.path()) == 2.5);
    root.write("proc/self/cgroup", "0::/a\n");
    CHECK(cpu_quota(root.path()) == std::nullopt);
  }

  TEST_CASE("version 1, alone or with version 2; -1 is no limit") {
    const QuotaRoot root("5:devices:/\n1:cpu,cpuacct:/job\n0::/job\n");
    root.write("cpu/job/cpu.cfs_quota_us", "300000\n");
    root.write("cpu/job/cpu.cfs_period_us", "100000\n");
    CHECK(cpu_quota(root.path()) == 3.0);
    root.write("unified/job/cpu.max", "100000 100000\n");
    CHECK(cpu_quota(root.path()) == 1.0);
    root.write("unified/job/cpu.max", "max 100000\n");
    root.write("cpu/job/cpu.cfs_quota_us", "-1\n");
    CHECK(cpu_quota(root.path()) == std::nullopt);
  }

  TEST_CASE("nonsense is no limit") {
    const QuotaRoot root("0::/\n");
    root.write("unified/cpu.max", "fast\n");
    CHECK(cpu_quota(root.path()) == std::nullopt);
    root.write("unified/cpu.max", "100000 0\n");
    CHECK(cpu_quota(root.path()) == std::nullopt);
  }
}

using namespace hyb;

namespace {

constexpr int thread_counts[] = {1, 2, 3, 7};

double process_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

TEST_SUITE("kernels/thread_pool") {
  TEST_CASE("slices cover everything once, in order, cut at multiples of the grain") {
    for (const int threads : thread_counts) {
      for (const std::int64_t count : {0, 1, 5, 64, 100, 101}) {
        for (const std::int64_t grain : {1, 4, 64}) {
          std::int64_t next = 0, largest = 0, smallest = count;
          for (int thread = 0; thread < threads; ++thread) {
            const Slice slice = slice_of(count, grain, thread, threads);
            CHECK(slice.begin == next);
            CHECK((slice.begin % grain == 0 || slice.begin == count));
            next = slice.end;
            largest = std::max(largest, slice.end - slice.begin);
            smallest = std::min(smallest, slice.end - slice.begin);
          }
          CHECK(next == count);
          CHECK(largest - smallest < 2 * grain);
        }
      }
    }
  }

  TEST_CASE("every thread runs the body once per run, also after it slept") {
    for (const int threads : thread_counts) {
      ThreadPool pool(threads);
      CHECK(pool.threads() == threads);
      std::vector<int> runs(static_cast<std::size_t>(threads));
      for (int round = 0; round < 300; ++round) {
        pool.run([&](int thread, int all) {
          if (all == threads) ++runs[static_cast<std::size_t>(thread)];
        });
        if (round % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      for (const int count : runs) CHECK(count == 300);
    }
  }

  TEST_CASE("a distribution hands out every item once, and runs are no longer than the grain") {
    for (const int threads : thread_counts) {
      Queue queue(Device::cpu, {.threads = threads, .isa = {}});
      for (const std::int64_t count : {0, 1, 7, 1000}) {
        for (const std::int64_t grain : {1, 3, 2000}) {
          std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
          std::atomic<bool> too_long{false};
          queue.share(count, grain, [&](std::int64_t begin, std::int64_t end, int) {
            if (end - begin > grain) too_long = true;
            for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
          });
          CHECK_FALSE(too_long);
          for (const auto& times : seen) CHECK(times == 1);
        }
      }
    }
  }

  TEST_CASE("a thread that is held up does not keep its items from the others") {
    Queue queue(Device::cpu, {.threads = 2, .isa = {}});
    std::atomic<int> done{0};
    std::atomic<bool> all_others_done{false};
    queue.share(100, 1, [&](std::int64_t begin, std::int64_t, int) {
      if (begin == 0) {  // waits for items 1..49, which are in the same slice
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (done < 99 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
        all_others_done = done == 99;
      }
      ++done;
    });
    CHECK(all_others_done);
  }

  TEST_CASE("denormals are zero while computing, alone or not, and the caller's mode comes back") {
    Queue queue(Device::cpu, {.threads = 3, .isa = {}});
    const unsigned before = _mm_getcsr();
    volatile float small = 1e-30F;
    std::atomic<int> flushed{0};
    const auto body = [&](int, int) {
      if (small * small == 0.0F && small * 1e-10F == 0.0F) ++flushed;
    };
    queue.parallel(body);
    CHECK(flushed == 3);
    queue.alone(body);
    CHECK(flushed == 4);
    CHECK(_mm_getcsr() == before);
    CHECK(small * 1e-10F != 0.0F);
  }

  TEST_CASE("what a thread throws reaches the caller when all are done, and the next run works") {
    ThreadPool pool(3);
    for (int thrower = 0; thrower < 3; ++thrower) {
      std::atomic<int> done = 0;
      CHECK_THROWS_AS(pool.run([&](int thread, int) {
        if (thread == thrower) throw std::bad_alloc();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ++done;
      }),
                      std::bad_alloc);
      CHECK(done == 2);
    }
    std::atomic<int> done = 0;
    pool.run([&](int, int) { ++done; });
    CHECK(done == 3);
  }

  TEST_CASE("a run inside a run is an error, not a deadlock") {
    ThreadPool pool(1);
    bool refused = false;
    pool.run([&](int, int) {
      try {
        pool.run([](int, int) {});
      } catch (const Error&) {
        refused = true;
      }
    });
    CHECK(refused);
  }

  TEST_CASE("workers leave Ctrl-C to others, and their own faults reach the handlers") {
    ThreadPool pool(2);
    sigset_t masked;
    sigemptyset(&masked);
    pool.run([&](int thread, int) {
      if (thread == 1) pthread_sigmask(SIG_SETMASK, nullptr, &masked);
    });
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) {
      CHECK(sigismember(&masked, signal) == 1);
    }
    for (const int signal : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT}) {
      CHECK(sigismember(&masked, signal) == 0);
    }
  }

  TEST_CASE("a mapped file that shrinks is exit status 3 also where a worker hits it") {
    const hyb::testing::TemporaryFolder folder;
    const auto path = folder.write("weights", std::string(1 << 20, 'x'));
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::close(STDERR_FILENO);
      ThreadPool pool(2);
      const MappedFile file(path);
      std::filesystem::resize_file(path, 100);
      std::atomic<int> sum = 0;
      pool.run([&](int thread, int) {
        if (thread == 1) sum += static_cast<int>(file.bytes().back());
      });
      ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 3);
  }

  TEST_CASE("an idle pool burns no CPU") {
    ThreadPool pool(3);
    pool.run([](int, int) {});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // past the time of spinning
    const double before = process_cpu_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    CHECK(process_cpu_seconds() - before < 0.02);
  }

  TEST_CASE("pools side by side are pinned to CPUs of their own, where there are as many") {
    const int usable = usable_cpus().count;
    const auto cpus_of = [](ThreadPool& pool) {
      std::vector<std::vector<int>> cpus(static_cast<std::size_t>(pool.threads()));
      pool.run([&](int thread, int) {
        cpu_set_t set;
        CPU_ZERO(&set);
        sched_getaffinity(0, sizeof set, &set);
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
          if (CPU_ISSET(cpu, &set)) cpus[static_cast<std::size_t>(thread)].push_back(cpu);
        }
      });
      return cpus;
    };
    const auto roams = [&](const std::vector<int>& cpus) { return std::ssize(cpus) == usable; };
    ThreadPool first(2, {.before = 0, .after = usable});
    CHECK((usable == 1 || roams(cpus_of(first)[1])));  // more threads than CPUs: none is pinned
    if (usable < 4 || usable_cpus().quota_binds) return;
    ThreadPool low(2, {.before = 0, .after = usable - 2}),
        high(usable - 2, {.before = 2, .after = 0});
    std::set<int> pinned;
    for (ThreadPool* const pool : {&low, &high}) {
      const auto cpus = cpus_of(*pool);
      CHECK(roams(cpus[0]));  // the caller's
      for (std::size_t thread = 1; thread < cpus.size(); ++thread) {
        CHECK(cpus[thread].size() == 1);
        CHECK(pinned.insert(cpus[thread].front()).second);
      }
    }
    CHECK(std::ssize(pinned) == usable - 2);
  }

  TEST_CASE("this process may use at least one CPU, and no more than the machine has") {
    const UsableCpus usable = usable_cpus();
    CHECK(usable.count >= 1);
    CHECK(usable.count <= static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  }
}

}  // namespace thread_pool_test
