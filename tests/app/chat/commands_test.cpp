#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "app/chat/commands.h"
#include "core/base/error.h"
#include "tests/support/error_text.h"

namespace commands_test {

using namespace hyb;
using namespace hyb::app;
using Kind = SlashCommand::Kind;

namespace {

std::string refusal(const std::string& text) {
  try {
    parse_slash_command(text);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("app/chat/commands") {
  TEST_CASE("one slash is for us, two are for the model") {
    CHECK(is_slash_command("/help"));
    CHECK(is_slash_command("/"));
    CHECK_FALSE(is_slash_command("//help"));
    CHECK_FALSE(is_slash_command(" /help"));
    CHECK_FALSE(is_slash_command(""));
  }

  TEST_CASE("names and aliases") {
    CHECK(parse_slash_command("/?").kind == Kind::help);
    CHECK(parse_slash_command("/new").kind == Kind::clear);
    for (const char* name : {"/exit", "/quit", "/bye"}) {
      CHECK(parse_slash_command(name).kind == Kind::exit);
    }
    for (const std::string& name : slash_names()) CHECK_NOTHROW(parse_slash_command(name));
  }

  TEST_CASE("arguments") {
    CHECK(parse_slash_command("/undo").count == 1);
    CHECK(parse_slash_command("/undo  3 ").count == 3);
    CHECK(parse_slash_command("/regen 2").count == 2);
    CHECK(parse_slash_command("/edit").count == 0);
    CHECK(parse_slash_command("/edit 2").count == 2);
    CHECK(parse_slash_command("/edit 2").argument.empty());
    CHECK(parse_slash_command("/edit 2  three\nfour ").argument == "three\nfour");
    CHECK(parse_slash_command("/goto side").argument == "side");
    CHECK(parse_slash_command("/set temperature 0.5 ").argument == "temperature 0.5");
    CHECK(parse_slash_command("/system two\nlines\n").argument == "two\nlines");
    for (const char* bad : {"/undo 0", "/undo -1", "/undo x", "/undo 1 2", "/undo 99999999999",
                            "/help me", "/clear all", "/edit all", "/edit 0", "/mem all"}) {
      CAPTURE(bad);
      CHECK_FALSE(refusal(bad).empty());
    }
  }

  TEST_CASE("an unknown command names the nearest, and the way to say it all the same") {
    CHECK(testing::contains(refusal("/stat"), "/stats"));
    CHECK(testing::contains(refusal("/halp"), "/help"));
    CHECK(testing::contains(refusal("/etc/passwd what is it"), "//"));
    CHECK(refusal("/" + std::string(1'000'000, 'x')).size() < 300);
  }

  TEST_CASE("the help lists every command") {
    for (const std::string& name : slash_names()) CHECK(testing::contains(slash_help(), name));
  }
}

using testing::contains;

namespace {

const Json no_config = Json::object();

}  // namespace

TEST_SUITE("app/chat/settings") {
  TEST_CASE("a value is changed, shown and taken back") {
    const Json config = {{"do_sample", true}, {"temperature", 0.5}, {"top_k", 40}};
    Settings settings({}, config, 100);
    CHECK(contains(settings.set("temperature"), "0.5"));
    CHECK(contains(settings.set("temperature 0.25"), "0.25"));
    CHECK(settings.options().parameters.at("temperature") == ParameterValue(0.25F));
    CHECK(contains(settings.set("temperature default"), "0.5"));
    CHECK_FALSE(settings.options().parameters.contains("temperature"));
    CHECK(contains(settings.set("seed=18446744073709551615"), "18446744073709551615"));
    CHECK(contains(settings.set("max_tokens 12"), "12"));
    CHECK(settings.options().max_tokens == 12);
    const std::string all = settings.set("");
    std::vector<std::string> names = {"max_tokens"};
    for (const Parameter& parameter : sampling_parameters) names.emplace_back(parameter.name);
    for (const std::string& name : names) {
      CHECK(contains(all, name));
      CHECK(contains(settings.set(name), name));
    }
  }

  TEST_CASE("what is out of range or no number is refused, and changes nothing") {
    Settings settings({}, no_config, 100);
    settings.set("temperature 0.7");
    const std::string before = settings.set("");
    for (const char* bad :
         {"temperature -1", "temperature nan", "temperature inf", "temperature 1e99",
          "temperature 0.5x", "temperature 0,5", "top_p 0", "top_p 1.5", "top_k -2", "top_k 1.5",
          "min_p 2", "seed -1", "seed 99999999999999999999", "max_tokens 0", "max_tokens -5",
          "repetition_penalty 0", "frequency_penalty 1000", "colour red", "top_p 0.5 0.6"}) {
      CAPTURE(bad);
      try {
        settings.set(bad);
        FAIL("accepted");
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::usage);
      }
      CHECK(settings.set("") == before);
    }
  }

  TEST_CASE("flags are checked like /set") {
    GenerationOptions options;
    options.parameters["top_p"] = 7.0F;
    CHECK_THROWS_AS(Settings(options, no_config, 100), Error);
  }
}

using namespace std::chrono_literals;

namespace {

Answer answer() {
  Answer answer;
  Usage& usage = answer.completion.usage;
  usage.prompt_tokens = 37;
  usage.prefilled_tokens = 37;
  usage.completion_tokens = 11;
  usage.queued = 1ms;
  usage.prefill = 99ms;
  usage.decode = 500ms;
  return answer;
}

}  // namespace

TEST_SUITE("app/chat/report") {
  TEST_CASE("the status line, plain and not") {
    CHECK(status_line(answer(), false) == "[reused 0, prefilled 37, 11 tokens, 20.0 tok/s]");
    CHECK(status_line(answer(), true) == "[reused 0 · prefilled 37 · 11 tokens · 20.0 tok/s]");
    Answer stopped = answer();
    stopped.was_stopped = true;
    stopped.completion.usage.completion_tokens = 1;
    CHECK(status_line(stopped, false) == "[stopped, reused 0, prefilled 37, 1 token]");
  }

  TEST_CASE("why no more was reused") {
    Answer known = answer();
    Usage& usage = known.completion.usage;
    usage.reuse_limit = ReuseLimit::no_snapshot;
    usage.matched_tokens = 30;
    usage.reused_tokens = 20;
    usage.prefilled_tokens = 17;
    CHECK(status_line(known, false) ==
          "[reused 20, prefilled 17 (no snapshot there), 11 tokens, 20.0 tok/s]");
    CHECK(testing::contains(stats_text(known, {}), "30 tokens (10 not reused), no snapshot there"));
    usage.reused_from = SnapshotSource::memory;
    CHECK_FALSE(testing::contains(status_line(known, false), "from"));
    usage.reused_from = SnapshotSource::disk;
    CHECK(testing::contains(status_line(known, false), "(no snapshot there, from disk)"));
    usage.reused_from = SnapshotSource::session;
    CHECK(testing::contains(status_line(known, false), ", from the session file)"));
    usage.resumed_packed = true;
    CHECK(testing::contains(status_line(known, false), "from an int8 snapshot)"));
    CHECK(testing::contains(stats_text(known, {}), ", from an int8 snapshot\n"));
    CHECK(testing::contains(stats_text(known, {.ahead_tokens = 7}), "7 tokens run while"));
    CHECK_FALSE(testing::contains(stats_text(known, {}), "while you typed"));
    CHECK_FALSE(testing::contains(stats_text(known, {}), "speculation"));
    known.speculation = {
        .verify_steps = 4, .drafted = {4, 4, 4}, .accepted = {4, 3, 1}, .drafting_seconds = 0.0162};
    CHECK(testing::contains(stats_text(known, {}),
                            "  speculation          drafts 8 of 12 accepted (by position 100.0, "
                            "75.0, 25.0 %), 3.0 tokens a step, made in 0.02 s\n"));
  }

  TEST_CASE("no rate without a second token or without time") {
    CHECK(tokens_per_second(answer().completion.usage) == doctest::Approx(20.0));
    Usage usage;
    usage.completion_tokens = 9;
    CHECK(tokens_per_second(usage) == 0.0);
    usage.completion_tokens = 1;
    usage.decode = 1s;
    CHECK(tokens_per_second(usage) == 0.0);
  }

  TEST_CASE("stats sum up") {
    ChatTotals totals;
    totals.add(answer().completion.usage);
    totals.add(answer().completion.usage);
    const std::string text = stats_text(answer(), totals);
    CHECK(testing::contains(text, "0 reused, 37 prefilled"));
    CHECK(testing::contains(text, "0.100 s"));
    CHECK(testing::contains(text, "2 answers: 0 reused, 74 prefilled, 22 generated"));
  }
}

using namespace hyb::testing;

TEST_SUITE("app/chat/memory_text") {
  TEST_CASE("superblocks without device memory are reported, if there are any") {
    MemoryPlan plan;
    plan.budget = 64U << 20;
    plan.weights = 8U << 20;
    EngineUsage usage;
    usage.pool.superblocks = 10;
    usage.pool.superblocks_free = 4;
    usage.pool.free_bytes = 8U << 20;
    const auto row = [&] {
      const std::string text = memory_text(plan, usage);
      const std::size_t at = text.find("of which the device lacks");
      return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
    };
    CHECK(row() == "");
    usage.pool.superblocks_uncommitted = 3;
    CHECK(contains(row(), "6.0 MiB"));
    CHECK(contains(row(), "3 superblocks"));
    CHECK(contains(memory_text(plan, usage), "4 of 10 superblocks"));
  }
}

}  // namespace commands_test
