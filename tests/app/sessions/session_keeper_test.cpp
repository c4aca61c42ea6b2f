#include "app/sessions/session_keeper.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <chrono>
#include <random>
#include <thread>

#include "core/base/error.h"
#include "core/io/file.h"
#include "tests/app/sessions/conversations.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/full_disk.h"
#include "tests/support/old_session.h"
#include "tests/support/quiet_log.h"

namespace session_keeper_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

struct Home {
  SessionKeeper keeper(const std::string& tokenizer = "t", const std::string& model = "m",
                       bool saves_unnamed = false) const {
    return {SessionFolder(path()),
            {.model = "some model",
             .fingerprint = {{"model", model}, {"tokenizer", tokenizer}},
             .vocab = 100},
            saves_unnamed};
  }
  std::filesystem::path path() const { return folder.path() / "data" / "sessions"; }
  SessionFolder sessions() const { return SessionFolder(path()); }

  TemporaryFolder folder;
};

Conversation talk(int turns = 4) {
  std::mt19937 random(8);
  return random_conversation(random, turns);
}

std::string messages(const Conversation& conversation) {
  return to_text(conversation.messages(conversation.here(), "x"));
}

}  // namespace

TEST_SUITE("app/sessions/session_keeper") {
  TEST_CASE("saved by name, found again, every turn from then on") {
    const Home home;
    SessionKeeper keeper = home.keeper();
    keeper.autosave({talk()});
    CHECK(home.sessions().names().empty());  // it has no name yet
    CHECK(keeper.save({talk(3)}, "a") == "a");
    keeper.autosave({talk(4)});
    SessionKeeper other = home.keeper();
    const auto loaded = other.load("a");
    CHECK(loaded.remark.empty());
    CHECK(messages(loaded.conversation) == messages(talk(4)));
    CHECK(loaded.conversation.own_turns(loaded.conversation.here()).size() ==
          talk(4).own_turns(talk(4).here()).size());
    struct stat about {};
    REQUIRE(::stat(home.sessions().path_of("a").c_str(), &about) == 0);
    CHECK((about.st_mode & 0777U) == 0600);
    REQUIRE(::stat(home.path().c_str(), &about) == 0);
    CHECK((about.st_mode & 0777U) == 0700);
  }

  TEST_CASE("without a name: the last chat, or a name of the date") {
    const Home home;
    SessionKeeper keeper = home.keeper("t", "m", true);
    keeper.autosave({talk(1)});
    CHECK(home.sessions().names() == std::vector<std::string>{"last"});
    CHECK_THROWS_AS(keeper.save({talk(1)}, "last"), Error);
    const std::string name = keeper.save({talk(2)}, "");
    CHECK(name.size() >= 17);
    CHECK(home.sessions().has(name));
    CHECK(keeper.save({talk(3)}, "") == name);
    keeper.forget_name();
    keeper.autosave({talk(4)});
    CHECK(home.sessions().read(name).record.conversation.turns() == 3);
    CHECK(home.sessions().read("last").record.conversation.turns() == 4);
  }

  TEST_CASE("the last chat is there until another one has an answer, and the one before it") {
    const Home home;
    const Exchange question{.message = "q", .answer_text = {}, .was_interrupted = true};
    const auto turns = [&](const char* name) {
      return home.sessions().read(name).record.conversation.turns();
    };
    SessionKeeper keeper = home.keeper("t", "m", true);
    keeper.autosave({talk(3)});
    for (int i = 0; i < 2; ++i) {  // left before an answer
      SessionKeeper other = home.keeper("t", "m", true);
      Conversation conversation;
      other.begin_turn({conversation}, question);
      CHECK(turns("last-1") == 3);
      CHECK(turns("last") == 1);
    }
    keeper.autosave({talk(4)});  // side by side: its own file is the last one again
    CHECK(turns("last") == 4);
    keeper.autosave({talk(5)});
    CHECK(home.sessions().names() == std::vector<std::string>{"last"});
    keeper.forget_name();
    keeper.begin_turn({Conversation()}, question);
    CHECK(turns("last-1") == 5);
    CHECK(keeper.kept_as() == "last");
    SessionKeeper beside = home.keeper("t", "m", true);
    for (int i = 0; i < 3; ++i) {  // two chats in turns are two files
      beside.autosave({talk(7 + i)});
      CHECK(turns("last") == 7 + i);
      keeper.autosave({talk(2 + i)});
      CHECK(turns("last") == 2 + i);
      CHECK(turns("last-1") == 7 + i);
      CHECK(turns("last-2") == 5);
      CHECK(beside.kept_as() == "last-1");
    }
    CHECK(home.sessions().names() == std::vector<std::string>{"last", "last-1", "last-2"});
    CHECK_THROWS_AS(keeper.save({talk(1)}, "last-1"), Error);
    CHECK_THROWS_AS(home.keeper().open("last-3"), Error);
    for (int i = 0; i < last_sessions; ++i) {
      keeper.forget_name();
      keeper.autosave({talk(6 + i)});
    }
    CHECK(home.sessions().names() ==
          std::vector<std::string>{"last", "last-1", "last-2", "last-3", "last-4"});
    CHECK(turns("last") == 10);
    CHECK(turns("last-4") == 6);
  }

  TEST_CASE("what can't be rewritten is added to, and a chat that is not saved has no file") {
    const QuietLog quiet;
    const Home home;
    SessionKeeper keeper = home.keeper();
    keeper.save({talk(1)}, "a");
    const Conversation before = talk(1);
    keeper.begin_turn({before}, {.message = std::string(600'000, 'q'), .answer_text = {}});
    const auto path = home.sessions().path_of("a");
    const auto temporary = path.string() + ".new";
    std::filesystem::create_directory(temporary);
    keeper.autosave({talk(2)});
    keeper.autosave({talk(3)});
    CHECK(keeper.kept_as() == "a");
    CHECK(home.sessions().read("a").record.conversation.turns() == 3);
    CHECK(std::filesystem::file_size(path) > 600'000);
    std::filesystem::remove(temporary);
    keeper.autosave({talk(4)});
    CHECK(std::filesystem::file_size(path) < 600'000);
    CHECK(keeper.kept_as() == "a");  // the new file is its own
    keeper.autosave({talk(5)});
    CHECK(home.sessions().read("a").record.conversation.turns() == 5);
    const auto aside = home.path().parent_path() / "aside";
    std::filesystem::rename(home.path(), aside);
    home.folder.write("data/sessions", "");
    keeper.autosave({talk(6)});
    CHECK(keeper.kept_as() == "");
  }

  TEST_CASE("no session is overwritten") {
    const Home home;
    SessionKeeper one = home.keeper(), other = home.keeper();
    one.save({talk(1)}, "a");
    CHECK_THROWS_AS(other.save({talk(2)}, "a"), Error);
    other.load("a");
    other.save({talk(3)}, "");
    CHECK_THROWS_AS(one.save({talk(4)}, "a"), Error);
    const QuietLog log;
    one.autosave({talk(4)});  // goes on under a name of its own
    CHECK(one.name() == "a-2");
    CHECK(one.kept_as() == "a-2");
    CHECK(home.sessions().read("a").record.conversation.turns() == 3);
    CHECK(home.sessions().read("a-2").record.conversation.turns() == 4);
    const Exchange question{.message = "q", .answer_text = {}, .was_interrupted = true};
    SessionKeeper third = home.keeper();
    third.open("c");
    home.keeper().save({talk(1)}, "c");
    third.begin_turn({talk(2)}, question);
    third.add_answer("because");
    third.autosave({talk(3)});
    CHECK(home.sessions().read("c").record.conversation.turns() == 1);
    CHECK(home.sessions().read("c-2").record.conversation.turns() == 3);
    CHECK(one.save({talk(4)}, "b") == "b");
    one.autosave({talk(2)});
    CHECK(home.sessions().read("b").record.conversation.turns() == 2);
  }

  TEST_CASE(
      "a question is saved before its answer, what came of it too, and the turn replaces it") {
    const Home home;
    SessionKeeper keeper = home.keeper();
    keeper.open("a");
    Conversation conversation = talk(2);
    keeper.begin_turn({conversation},
                      {.message = "why?", .answer_text = {}, .was_interrupted = true});
    const auto last = [&] {
      const Conversation now = home.keeper().load("a").conversation;
      return now.turn(now.here()).exchange;
    };
    CHECK(last().message == "why?");
    CHECK(is_unanswered(last()));
    std::this_thread::sleep_for(std::chrono::milliseconds(1010));
    keeper.add_answer("because ");
    keeper.add_answer("of it");  // within the same second
    CHECK(last().answer_text == "because ");
    CHECK(last().was_interrupted);
    CHECK(contains(transcript(home.keeper().load("a").conversation), "assistant (stopped): bec"));
    conversation.add({.message = "why?", .answer = {}, .answer_text = "because of it"});
    keeper.autosave({conversation});
    CHECK(home.sessions().read("a").record.conversation.turns() == 3);
    CHECK(last().answer_text == "because of it");
    CHECK_FALSE(last().was_interrupted);
    // A question that stays without an answer: a chat that goes on keeps it as a turn.
    keeper.begin_turn({conversation},
                      {.message = "and?", .answer_text = {}, .was_interrupted = true});
    SessionKeeper other = home.keeper();
    conversation = other.load("a").conversation;
    CHECK(conversation.turns() == 4);
    const std::string bytes = read_whole_file(home.sessions().path_of("a"), 1 << 20);
    other.close({conversation});
    CHECK(read_whole_file(home.sessions().path_of("a"), 1 << 20) == bytes);
    conversation.add({.message = "and?", .answer = {}, .answer_text = "so"});
    other.autosave({conversation});
    const auto saved = home.sessions().read("a");
    CHECK_FALSE(saved.has_draft);
    CHECK(record_text({.model = "", .conversation = saved.record.conversation}) ==
          record_text({.model = "", .conversation = conversation}));
  }

  TEST_CASE("what was read before is not read again, unless the file has changed since") {
    const Home home;
    home.keeper().save({talk(2)}, "a");
    SavedSession known = home.sessions().read("a");
    known.record.conversation = talk(3);
    CHECK(messages(home.keeper().load("a", known).conversation) == messages(talk(3)));
    SessionKeeper other = home.keeper();
    Conversation conversation = other.load("a").conversation;
    conversation.add({.message = "more", .answer = {}, .answer_text = "of it"});
    other.autosave({conversation});
    CHECK(messages(home.keeper().load("a", known).conversation) == messages(conversation));
  }

  TEST_CASE("a session of the older form is read, and is of the present one after a turn") {
    const Home home;
    std::filesystem::create_directories(home.path());
    const SessionRecord record{.model = "some model", .saved_s = 5, .conversation = talk(3)};
    CountedSections old(home.path() / "a.session", session_format);
    const std::string fingerprint = to_text({{"model", "m"}, {"tokenizer", "t"}});
    const std::string texts = record_text(record);
    old.add(1, 0, std::as_bytes(std::span(fingerprint)));
    old.add(2, 0, std::as_bytes(std::span(texts)));
    old.commit();
    CHECK(home.sessions().read("a").is_older);
    SessionKeeper keeper = home.keeper();
    Conversation conversation = keeper.load("a").conversation;
    CHECK(messages(conversation) == messages(talk(3)));
    keeper.close({conversation});
    CHECK(home.sessions().read("a").is_older);
    conversation.add({.message = "more", .answer = {}, .answer_text = "of it"});
    keeper.autosave({conversation});
    CHECK_FALSE(home.sessions().read("a").is_older);
    CHECK(messages(home.keeper().load("a").conversation) == messages(conversation));
  }

  TEST_CASE("another model keeps the ids where the tokenizer is the same, the texts anyway") {
    const Home home;
    home.keeper().save({talk()}, "a");
    auto same = home.keeper("t", "other").load("a");
    CHECK(contains(same.remark, "prefilled again"));
    CHECK_FALSE(same.conversation.turn(1).exchange.answer.tokens.empty());
    auto foreign = home.keeper("u").load("a");
    CHECK(contains(foreign.remark, "encoded again"));
    for (std::int32_t turn = 1; turn <= foreign.conversation.turns(); ++turn) {
      CHECK(foreign.conversation.turn(turn).exchange.answer.tokens.empty());
      CHECK(foreign.conversation.turn(turn).exchange.lead.empty());
    }
    CHECK(messages(foreign.conversation) == messages(talk()));
  }

  TEST_CASE("ids that the vocabulary lacks are not used") {
    const Home home;
    Conversation conversation;
    conversation.add({.message = "q", .answer = {"a", {TokenId{100}}}, .answer_text = "a"});
    home.keeper().save({conversation}, "a");
    CHECK(home.keeper().load("a").conversation.turn(1).exchange.answer.tokens.empty());
  }

  TEST_CASE("a damaged file is refused, stays what it is, and can be removed") {
    const Home home;
    SessionKeeper keeper = home.keeper();
    keeper.save({talk()}, "a");
    const std::string good = read_whole_file(home.sessions().path_of("a"), 1 << 20);
    const auto path = home.folder.write("data/sessions/a.session", good.substr(0, good.size() / 2));
    SessionKeeper other = home.keeper();
    CHECK(contains(model_error([&] { other.open("a"); }), "hyb sessions rm a"));
    CHECK(other.name().empty());
    CHECK(contains(other.list_text(80), "can't be read"));
    home.sessions().remove("a");
    CHECK_FALSE(std::filesystem::exists(path));
    CHECK(other.open("a").conversation.turns() == 0);
    CHECK(other.save({talk()}, "") == "a");
  }

  TEST_CASE("names are names, not paths") {
    const Home home;
    SessionKeeper keeper = home.keeper();
    for (const char* bad : {"../a", "a/b", ".hidden", "-a", "a b", "", "\xc3\xa4"}) {
      CAPTURE(bad);
      CHECK_THROWS_AS(check_session_name(bad), Error);
      CHECK_THROWS_AS(keeper.load(bad), Error);
    }
    CHECK_THROWS_AS(check_session_name(std::string(65, 'a')), Error);
    CHECK_THROWS_AS(home.sessions().remove("none"), Error);
  }

  TEST_CASE("a file that can't be looked at for a while is saved to afterwards") {
    const QuietLog quiet;
    const Home home;
    SessionKeeper keeper = home.keeper();
    keeper.save({talk(1)}, "a");
    const auto aside = home.path().parent_path() / "aside";
    std::filesystem::rename(home.path(), aside);
    std::filesystem::create_symlink(home.path(), home.path());  // ELOOP
    keeper.autosave({talk(2)});
    const std::string said = error_text([&] { keeper.save({talk(2)}, "a"); });
    CHECK(contains(said, "a.session: can't be looked at: Too many levels of symbolic links"));
    CHECK_THROWS_AS(home.sessions().has("a"), Error);  // neither there nor not
    CHECK_THROWS_AS(home.sessions().names(), Error);
    std::filesystem::remove(home.path());
    std::filesystem::rename(aside, home.path());
    keeper.autosave({talk(3)});
    CHECK(messages(home.keeper().load("a").conversation) == messages(talk(3)));
  }

  TEST_CASE("a write that failed half way is made up for when there is room") {
    const QuietLog quiet;
    const Home home;
    SessionKeeper keeper = home.keeper();
    keeper.save({talk(1)}, "a");
    {
      const auto bytes = std::filesystem::file_size(home.sessions().path_of("a"));
      const FullDisk disk(bytes + 40);
      keeper.autosave({talk(2)});
      CHECK(keeper.kept_as().empty());
      keeper.autosave({talk(2)});
    }
    CHECK(home.sessions().read("a").record.conversation.turns() == 1);
    keeper.autosave({talk(3)});
    CHECK(keeper.kept_as() == "a");
    CHECK(messages(home.keeper().load("a").conversation) == messages(talk(3)));
  }

  TEST_CASE("of a damaged file the turns before the damage can be read") {
    const QuietLog quiet;
    const Home home;
    SessionKeeper keeper = home.keeper();
    keeper.save({talk(2)}, "a");
    const std::filesystem::path path = home.sessions().path_of("a");
    const auto bytes = std::filesystem::file_size(path);
    keeper.autosave({talk(3)});
    keeper.autosave({talk(4)});
    std::string text = read_whole_file(path, 1 << 20);
    text[static_cast<std::size_t>(bytes) + 60] ^= 1;
    home.folder.write("data/sessions/a.session", text);
    CHECK(contains(model_error([&] { home.sessions().read("a"); }), "hyb sessions export a"));
    CHECK(home.sessions().read_record("a").conversation.turns() == 2);
  }

  TEST_CASE("a place that can't be written costs one warning, not the chat") {
    const TemporaryFolder folder;
    folder.write("blocked", "");
    SessionKeeper keeper(SessionFolder(folder.path() / "blocked" / "sessions"),
                         {.model = "m", .fingerprint = {}, .vocab = 100}, true);
    CHECK_NOTHROW(keeper.autosave({talk()}));
    CHECK_NOTHROW(keeper.autosave({talk()}));
    CHECK_THROWS_AS(keeper.save({talk()}, "a"), Error);
    SessionKeeper nowhere(std::nullopt, {.model = "m", .fingerprint = {}, .vocab = 100}, true);
    CHECK_NOTHROW(nowhere.autosave({talk()}));
    CHECK_THROWS_AS(nowhere.save({talk()}, "a"), Error);
  }
}

}  // namespace session_keeper_test
