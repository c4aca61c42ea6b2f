#include "core/memory/session_file.h"

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"

using namespace hyb;
using namespace hyb::testing;

TEST_SUITE("core/memory/session_file") {
  TEST_CASE("the text of a session survives; what is damaged is refused with its path") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "s";
    const SessionText text{.fingerprint = {{"weights", "abc"}},
                           .app = R"({"turns": [{"ids": [1, 2], "text": "grüß"}]})"};
    write_session(path, text);
    const SessionReading reading = read_session(path);
    REQUIRE(reading.text);
    CHECK(reading.refused.empty());
    CHECK(reading.text->fingerprint == text.fingerprint);
    CHECK(reading.text->app == text.app);

    const std::string good = read_whole_file(path, 1 << 20);
    for (std::size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 0x10);
      const auto damaged = folder.write("bad", bad);
      CHECK(contains(read_session(damaged).refused, damaged.string()));
      CHECK(!read_session(damaged).text);
      folder.write("bad", good.substr(0, i));
      CHECK(!read_session(damaged).refused.empty());
    }
  }

  TEST_CASE("no file, a folder, an empty file: refused") {
    const TemporaryFolder folder;
    CHECK(!read_session(folder.path() / "none").refused.empty());
    CHECK(!read_session(folder.path()).refused.empty());
    CHECK(!read_session(folder.write("empty", "")).refused.empty());
  }
}
