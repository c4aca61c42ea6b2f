#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "app/batch/output_file.h"
#include "core/base/error.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/full_disk.h"

namespace output_file_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

std::string line(int i, bool failed = false) {
  const std::string id = "r-" + std::to_string(i);
  return failed
             ? failed_line(id, {.fault = LineFault::json, .message = "m"})
             : answered_line(id, Json{{"text", std::string(static_cast<std::size_t>(i) % 7, 'x')}});
}

Hash128 id(int i) { return hash_of("r-" + std::to_string(i)); }

}  // namespace

TEST_SUITE("app/batch/output_file") {
  TEST_CASE("cut anywhere, a resumed output holds exactly every result once") {
    const TemporaryFolder folder;
    constexpr int results = 12;
    std::string whole;
    for (int i = 0; i < results; ++i) whole += line(i, i % 5 == 0);
    std::mt19937 random(7);
    for (int round = 0; round < 200; ++round) {
      const std::size_t at = round == 0 ? whole.size() : random() % (whole.size() + 1);
      CAPTURE(at);
      const auto path = folder.write("out", std::string_view(whole).substr(0, at));
      OutputFile output = OutputFile::open(path);
      std::set<Hash128> done;
      for (const ResultMark& mark : output.recover(false)) {
        CHECK(done.insert(mark.id).second);
      }
      for (int i = 0; i < results; ++i) {
        if (!done.contains(id(i))) REQUIRE(output.append(line(i, i % 5 == 0)) == 0);
      }
      output.sync();
      REQUIRE(content(path) == whole);
    }
  }

  TEST_CASE("a line that is not a result is not written over") {
    const TemporaryFolder folder;
    const auto path = folder.write("out", line(1) + "my notes\n" + line(2));
    OutputFile output = OutputFile::open(path);
    CHECK(contains(model_error([&] { output.recover(false); }), "line 2"));
    CHECK(output.recover(true).size() == 2);
  }

  TEST_CASE("one writer at a time") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "out";
    {
      const OutputFile first = OutputFile::open(path);
      CHECK(contains(error_text([&] { OutputFile::open(path); }), "another hyb batch"));
    }
    CHECK_NOTHROW(OutputFile::open(path));
  }

  TEST_CASE("only regular files, through links too") {
    const TemporaryFolder folder;
    CHECK_THROWS_AS(OutputFile::open(folder.path()), Error);
    CHECK_THROWS_AS(OutputFile::open("/dev/full"), Error);
    CHECK_THROWS_AS(OutputFile::open(folder.path() / "absent" / "out"), Error);
    std::filesystem::create_symlink("real", folder.path() / "link");
    OutputFile output = OutputFile::open(folder.path() / "link");
    CHECK(output.append(line(1)) == 0);
    CHECK(content(folder.path() / "real") == line(1));
  }

  TEST_CASE("failed results are dropped, the rest stays in place and locked") {
    const TemporaryFolder folder;
    const auto path = folder.write("out", line(1) + line(2, true) + line(3) + line(4, true));
    OutputFile output = OutputFile::open(path);
    CHECK(output.recover(false).size() == 4);
    output.drop_failed();
    CHECK(content(path) == line(1) + line(3));
    CHECK(output.append(line(2)) == 0);
    CHECK(content(path) == line(1) + line(3) + line(2));
    CHECK_THROWS_AS(OutputFile::open(path), Error);
    CHECK_FALSE(std::filesystem::exists(path.string() + ".new"));
  }

  TEST_CASE("a file that others delete, move, cut or write to takes no more results") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "out";
    const auto text_after = [&](const auto& interfere) {
      std::filesystem::remove(path);
      OutputFile output = OutputFile::open(path);
      REQUIRE(output.append(line(1)) == 0);
      CHECK(output.interference().empty());
      interfere();
      const std::string text = error_text([&] { output.sync(); });
      CHECK(error_text([&] { output.append(line(2)); }) == text);
      return text;
    };
    CHECK(contains(text_after([&] { std::filesystem::remove(path); }), "out: was deleted"));
    CHECK(contains(text_after([&] { std::filesystem::rename(path, folder.path() / "b"); }),
                   "was moved or replaced"));
    CHECK(contains(text_after([&] {
                     std::filesystem::rename(path, folder.path() / "c");
                     folder.write("out", line(1));
                   }),
                   "was moved or replaced"));
    CHECK(contains(text_after([&] { folder.write("out", ""); }), "was cut to 0 bytes"));
    CHECK(contains(text_after([&] { folder.write("out", line(1) + "x"); }),
                   "was written to by another program"));
    CHECK_FALSE(contains(content(path), "r-2"));
  }

  TEST_CASE("a stream takes lines until its reader is gone") {
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    const auto handler = ::signal(SIGPIPE, SIG_IGN);
    OutputFile output = OutputFile::stream(ends[1], "stdout");
    CHECK(output.recover(false).empty());
    CHECK(output.append("one\n") == 0);
    CHECK_NOTHROW(output.sync());
    std::array<char, 16> read{};
    CHECK(::read(ends[0], read.data(), read.size()) == 4);
    ::close(ends[0]);
    CHECK_FALSE(output.is_closed());
    CHECK(output.append("two\n") == EPIPE);
    CHECK(output.is_closed());
    ::close(ends[1]);
    ::signal(SIGPIPE, handler);
  }

  TEST_CASE("a write that does not fit leaves no trace") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "out";
    OutputFile output = OutputFile::open(path);
    REQUIRE(output.append(line(1)) == 0);
    {
      const FullDisk disk(line(1).size() + 20);
      CHECK(output.append(line(2)) == EFBIG);
      CHECK(output.append(line(3)) == EFBIG);
    }
    CHECK(content(path) == line(1));
    CHECK(output.append(line(2)) == 0);
    output.sync();
    CHECK(content(path) == line(1) + line(2));
  }
}

TEST_SUITE("app/batch/result_writer") {
  TEST_CASE("ordered results wait for their turn, whatever the order they come in") {
    const TemporaryFolder folder;
    std::mt19937 random(3);
    for (int round = 0; round < 20; ++round) {
      const auto path = folder.write("out", "");
      OutputFile output = OutputFile::open(path);
      ResultWriter writer(output, {.ordered = true, .warn = {}, .is_stopped = {}});
      std::vector<int> places(30);
      std::string wanted;
      for (int i = 0; i < 30; ++i) {
        places[static_cast<std::size_t>(i)] = i;
        wanted += std::to_string(i) + "\n";
      }
      std::shuffle(places.begin(), places.end(), random);
      for (const int place : places) {
        writer.put(place, std::to_string(place) + "\n", false);
        CHECK(wanted.starts_with(content(path)));
      }
      CHECK(writer.written() == 30);
      CHECK(content(path) == wanted);
    }
  }

  TEST_CASE("a full disk is waited for, reported once, and given up in the end") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "out";
    OutputFile output = OutputFile::open(path);
    std::vector<std::string> said;
    int looks = 0;
    auto disk = std::make_unique<FullDisk>(4);
    const auto warn = [&](const std::string& text) { said.push_back(text); };
    ResultWriter writer(output,
                        {.patience = std::chrono::seconds(60), .warn = warn, .is_stopped = [&] {
                           if (++looks == 3) disk.reset();  // someone made room
                           return false;
                         }});
    writer.put(0, "first line\n", false);
    CHECK(said.size() == 1);
    CHECK(content(path) == "first line\n");

    disk = std::make_unique<FullDisk>(12);
    ResultWriter hasty(output, {.patience = std::chrono::milliseconds(120),
                                .warn = warn,
                                .is_stopped = [] { return false; }});
    const std::string text = error_text([&] { hasty.put(0, "second line\n", false); });
    ResultWriter stopped(
        output,
        {.patience = std::chrono::seconds(60), .warn = warn, .is_stopped = [] { return true; }});
    CHECK_THROWS_AS(stopped.put(0, "second line\n", false), Error);
    disk.reset();
    CHECK(contains(text, "File too large"));
    CHECK(hasty.written() == 0);
    CHECK(content(path) == "first line\n");
  }

  TEST_CASE("results wait in memory until they may be written, and are dropped if they never may") {
    const TemporaryFolder folder;
    OutputFile output = OutputFile::open(folder.path() / "out");
    bool may_write = false, is_stopped = false;
    const auto writer_for = [&](std::size_t held_bytes_max) {
      return ResultWriter(output, {.ordered = true,
                                   .warn = {},
                                   .is_stopped = [&] { return is_stopped; },
                                   .may_write = [&] { return may_write; },
                                   .held_bytes_max = held_bytes_max});
    };
    ResultWriter writer = writer_for(1000);
    writer.put(1, line(1, true), true);
    writer.put(0, line(0), false);
    writer.poll();
    CHECK(content(output.path()).empty());
    CHECK(writer.written() == 0);
    CHECK(writer.turns() == 2);
    may_write = true;
    writer.poll();
    CHECK(content(output.path()) == line(0) + line(1, true));
    CHECK(writer.written() == 2);
    CHECK(writer.failed() == 1);

    may_write = false;
    int looks = 0;
    ResultWriter full(output, {.ordered = false,
                               .warn = {},
                               .is_stopped = [] { return false; },
                               .may_write = [&] { return ++looks > 3; },
                               .held_bytes_max = 1});
    full.put(0, line(2), false);  // more than may wait: put() returns when it is written
    CHECK(full.written() == 1);
    CHECK(looks > 3);

    ResultWriter stopped = writer_for(1000);
    stopped.put(0, line(3), false);
    is_stopped = true;
    stopped.finish();
    CHECK(stopped.written() == 0);
    CHECK_FALSE(contains(content(output.path()), "r-3"));

    ResultWriter refused(
        output, {.warn = {},
                 .is_stopped = [] { return false; },
                 .may_write = []() -> bool { throw Error(ErrorKind::usage, "another model"); }});
    CHECK_THROWS_AS(refused.put(0, line(4), false), Error);
    CHECK_FALSE(contains(content(output.path()), "r-4"));
  }
}

}  // namespace output_file_test
