#include "app/ui/background_work.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <stdexcept>

using namespace hyb::app;

namespace {

void wait_for(const std::atomic<int>& count, int least) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (count < least && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  REQUIRE(count >= least);
}

}  // namespace

TEST_SUITE("app/ui/background_work") {
  TEST_CASE("pieces are done until one says that it was the last") {
    std::atomic<int> pieces = 0;
    BackgroundWork work([&] { return ++pieces < 5; });
    wait_for(pieces, 5);
    work.stop();
    CHECK(pieces == 5);
  }

  TEST_CASE("nothing goes on after it was stopped, and whoever stops waits for the last piece") {
    for (const bool by_end_of_life : {false, true}) {
      std::atomic<int> begun = 0, ended = 0;
      {
        BackgroundWork work([&] {
          ++begun;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          ++ended;
          return true;
        });
        wait_for(begun, 3);
        if (!by_end_of_life) work.stop();
        if (!by_end_of_life) CHECK(begun == ended);
      }
      CHECK(begun == ended);
    }
  }

  TEST_CASE("it is done elsewhere, where no signal comes") {
    std::atomic<int> pieces = 0;
    std::thread::id where;
    bool is_blocked = false, faults_come = false;
    BackgroundWork work([&] {
      where = std::this_thread::get_id();
      sigset_t blocked;
      pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
      is_blocked = sigismember(&blocked, SIGINT) == 1;
      faults_come = sigismember(&blocked, SIGBUS) == 0;
      ++pieces;
      return false;
    });
    wait_for(pieces, 1);
    work.stop();
    CHECK(where != std::this_thread::get_id());
    CHECK(is_blocked);
    CHECK(faults_come);
    sigset_t here;
    pthread_sigmask(SIG_BLOCK, nullptr, &here);
    CHECK(sigismember(&here, SIGINT) == 0);
  }

  TEST_CASE("an error is for whoever stops it, once; no work is no thread") {
    std::atomic<int> pieces = 0;
    BackgroundWork work([&]() -> bool {
      ++pieces;
      throw std::runtime_error("no");
    });
    wait_for(pieces, 1);
    CHECK_THROWS_WITH(work.stop(), "no");
    CHECK_NOTHROW(work.stop());
    BackgroundWork none({});
    CHECK_NOTHROW(none.stop());
  }
}
