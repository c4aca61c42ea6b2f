#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "app/chat/commands.h"
#include "app/runtime/memory_plan.h"
#include "core/base/error.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

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

  TEST_CASE("Tab completes commands and what they take") {
    const testing::TemporaryFolder folder;
    folder.write("one.txt", "1");
    folder.write(".hidden", "1");
    std::filesystem::create_directory(folder.path() / "sub");
    const CompletionNames names = {.sessions = {"a", "bb"}, .branches = {"main"}};
    using Choices = std::vector<std::string>;
    CHECK(complete("/sta", names) == Choices{"/stats"});
    CHECK(complete("/load ", names) == Choices{"/load a", "/load bb"});
    CHECK(complete("/goto m", names) == Choices{"/goto main"});
    CHECK(complete("/set te", names) == Choices{"/set temperature"});
    CHECK(complete("/set temp d", names) == Choices{"/set temp default"});
    CHECK(complete("/set think o", names) == Choices{"/set think off", "/set think on"});
    CHECK(complete("/think d", names) == Choices{"/think default"});
    CHECK(complete("/nothing x", names).empty());
    CHECK(complete("say /load ", names).empty());
    const std::string base = "/read " + folder.path().string() + "/";
    CHECK(complete(base, names) == Choices{base + "one.txt", base + "sub/"});
    CHECK(complete(base + ".", names) == Choices{base + ".hidden"});
    CHECK(complete(base + "none/", names).empty());
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
    std::vector<std::string> names = {"max_tokens", "stop", "logit_bias"};
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

  TEST_CASE("names are spelled as flags are, too, and the nearest is named") {
    Settings settings({}, no_config, 100);
    CHECK(contains(settings.set("temp 0.9"), "temperature          0.9"));
    CHECK(contains(settings.set("--top-p=0.5"), "top_p                0.5"));
    CHECK(contains(settings.set("repeat-penalty 1.5"), "repetition_penalty   1.5"));
    CHECK(contains(settings.set("-s 7"), "seed                 7"));
    CHECK(contains(settings.set("n 9"), "max_tokens           9"));
    CHECK(contains(settings.set("n -1"), "no limit"));
    CHECK(setting_named("think") == "think");
    const auto refused = [&](const char* argument) {
      try {
        settings.set(argument);
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    CHECK(contains(refused("temprature 1"), "did you mean temperature?"));
    CHECK(contains(refused("tmp 1"), "did you mean temperature?"));
    CHECK(contains(refused("thnk on"), "did you mean think?"));
    CHECK_FALSE(contains(refused("colour red"), "did you mean"));
  }

  TEST_CASE("stop strings and biases are added one by one, and taken back") {
    Settings settings({}, no_config, 100);
    settings.set("stop END");
    CHECK(contains(settings.set("stop \"a\\n\""), "\"END\", \"a\\n\""));
    CHECK(settings.options().stop == std::vector<std::string>{"END", "a\n"});
    CHECK(contains(settings.set("stop default"), "none"));
    CHECK(settings.options().stop.empty());
    settings.set("logit_bias 42=-1.5");
    CHECK(contains(settings.set("logit-bias 3=2"), "42=-1.5, 3=2"));
    for (const char* bad :
         {"logit_bias 42", "logit_bias 100=1", "logit_bias 42=1", "stop \"a", "stop \"\""}) {
      CAPTURE(bad);
      CHECK_THROWS_AS(settings.set(bad), Error);
    }
    CHECK(settings.options().logit_bias.size() == 2);
    settings.set("logit_bias default");
    CHECK(settings.options().logit_bias.empty());
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
    CHECK(status_line(answer(), 32768, false) ==
          "11 tokens, 20 tok/s, first after 0.1 s, 48 of 32k");
    CHECK(status_line(answer(), 32768, true) ==
          "11 tokens · 20 tok/s · first after 0.1 s · 48 of 32k");
    Answer stopped = answer();
    stopped.was_stopped = true;
    stopped.completion.usage.completion_tokens = 1;
    stopped.completion.usage.prefill = 9ms;
    CHECK(status_line(stopped, 500, false) == "stopped, 1 token, first after 0.01 s, 38 of 500");
    Answer longer = answer();
    longer.completion.usage.prompt_tokens = 1200;
    longer.completion.usage.decode = 5s;
    longer.completion.usage.prefill = 2340ms;
    CHECK(status_line(longer, 4000, false) ==
          "11 tokens, 2.0 tok/s, first after 2.3 s, 1.2k of 3.9k");
  }

  TEST_CASE("why no more was reused is in the statistics") {
    Answer known = answer();
    Usage& usage = known.completion.usage;
    usage.reuse_limit = ReuseLimit::no_snapshot;
    usage.matched_tokens = 30;
    usage.reused_tokens = 20;
    usage.prefilled_tokens = 17;
    CHECK_FALSE(testing::contains(status_line(known, 100, false), "snapshot"));
    CHECK(testing::contains(stats_text(known, {}), "30 tokens (10 not reused), no snapshot there"));
    usage.reused_from = SnapshotSource::disk;
    CHECK(testing::contains(stats_text(known, {}), "no snapshot there, from disk\n"));
    usage.reused_from = SnapshotSource::session;
    CHECK(testing::contains(stats_text(known, {}), ", from the session file\n"));
    usage.resumed_packed = true;
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

  TEST_CASE("no rate of few tokens or little time") {
    CHECK(tokens_per_second(answer().completion.usage) == doctest::Approx(20.0));
    Usage burst = answer().completion.usage;
    burst.decode = 1ms;
    CHECK(tokens_per_second(burst) == 0.0);
    burst = answer().completion.usage;
    burst.completion_tokens = 7;
    CHECK(tokens_per_second(burst) == 0.0);
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
    CHECK(testing::contains(text, "prefill              374 tok/s"));
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
