#include "app/batch/result_writer.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <random>

#include "core/base/error.h"
#include "tests/support/error_text.h"
#include "tests/support/file_content.h"
#include "tests/support/temporary_folder.h"

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

/// Files of this process end at `bytes` as long as one lives, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit narrow{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &narrow);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit old_{};
  void (*handler_)(int);
};

}  // namespace

TEST_SUITE("app/batch/result_writer") {
  TEST_CASE("ordered results wait for their turn, whatever the order they come in") {
    const TemporaryFolder folder;
    std::mt19937 random(3);
    for (int round = 0; round < 20; ++round) {
      const auto path = folder.write("out", "");
      OutputFile output = OutputFile::open(path);
      ResultWriter writer(output, {.ordered = true, .say = {}, .is_stopped = {}});
      std::vector<int> places(30);
      std::string wanted;
      for (int i = 0; i < 30; ++i) {
        places[static_cast<std::size_t>(i)] = i;
        wanted += std::to_string(i) + "\n";
      }
      std::shuffle(places.begin(), places.end(), random);
      for (const int place : places) {
        writer.put(place, std::to_string(place) + "\n");
        CHECK(wanted.starts_with(content(path)));
      }
      CHECK(writer.written() == 30);
      CHECK(content(path) == wanted);
    }
  }

  TEST_CASE("a full disk is waited for, told once, and given up in the end") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "out";
    OutputFile output = OutputFile::open(path);
    std::vector<std::string> said;
    int looks = 0;
    auto disk = std::make_unique<FullDisk>(4);
    const auto say = [&](const std::string& text) { said.push_back(text); };
    ResultWriter writer(output,
                        {.patience = std::chrono::seconds(60), .say = say, .is_stopped = [&] {
                           if (++looks == 3) disk.reset();  // someone made room
                           return false;
                         }});
    writer.put(0, "first line\n");
    CHECK(said.size() == 1);
    CHECK(content(path) == "first line\n");

    disk = std::make_unique<FullDisk>(12);
    ResultWriter hasty(output, {.patience = std::chrono::milliseconds(120),
                                .say = say,
                                .is_stopped = [] { return false; }});
    const std::string text = error_text([&] { hasty.put(0, "second line\n"); });
    ResultWriter stopped(
        output,
        {.patience = std::chrono::seconds(60), .say = say, .is_stopped = [] { return true; }});
    CHECK_THROWS_AS(stopped.put(0, "second line\n"), Error);
    disk.reset();
    CHECK(contains(text, "File too large"));
    CHECK(hasty.written() == 0);
    CHECK(content(path) == "first line\n");
  }
}
