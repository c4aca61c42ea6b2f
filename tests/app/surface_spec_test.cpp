// Whatever guesses, and whatever of it is kept, shared, moved, saved and loaded: the answers are
// those of plain decoding, byte for byte.
#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "tests/app/random_model.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_spec_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

const std::vector<std::string> drafting_models = {"nemotron-latent", "nemotron-moe",
                                                  "qwen3-next-odd", "qwen3_5-moe", "qwen3_5-text"};

/// One model of each kind of recurrence, which need not have a draft layer.
const std::vector<std::string> recurrent_models = {
    "falcon-h1-groups", "granite-moe-nope", "jamba",       "kimi-linear",    "lfm2-moe",
    "mamba2",           "minimax",          "olmo-hybrid", "qwen3-next-odd", "zamba2-odd"};

/// Models for which there are heads here: without recurrent layers, some with windows, and
/// with Mamba-2, a delta net (which has a draft layer, too) and short convolutions.
const std::vector<std::string> models_with_heads = {"gpt-oss", "granite-odd", "lfm3", "qwen3-dense",
                                                    "qwen3_5-text"};

/// The same for DFlash heads, whose pages have to go with a slot in a small pool.
const std::vector<std::string> models_with_blocks = {"gpt-oss", "granite-moe-nope", "lfm3",
                                                     "qwen3-dense", "qwen3_5-text"};

/// A model and another one that drafts for it: Mamba-2, delta nets, short convolutions and windows,
/// each as either.
const std::vector<std::pair<std::string, std::string>> drafted_by_another = {
    {"falcon-h1-groups", "qwen3_5-text"},
    {"nemotron-dense", "lfm2-moe"},
    {"qwen3_5-text", "granite-swa-moe"},
    {"qwen3-next-odd", "granite-moe-nope"},
    {"lfm2-moe", "qwen3-next-odd"},
    {"lfm3", "gpt-oss"},
    {"granite-swa-moe", "falcon-h1-groups"},
    {"gpt-oss", "lfm3"},
    {"olmo-hybrid", "minimax"},
    {"minimax", "kimi-linear"},
    {"kimi-linear", "olmo-hybrid"}};

/// One model of each of these kinds.
const std::vector<std::string> self_drafting_models = {"granite-moe-nope", "qwen3_5-text",
                                                       "lfm2-moe", "granite-swa-moe"};

const std::vector<std::string> plain_options = {"--parallel", "1",      "--prefix-cache",
                                                "off",        "--spec", "off"};

/// Batches, in several settings, of a model that something drafts for, which `drafting` says how to
/// choose: their answers are those of plain decoding. Returns the number of accepted drafts.
/// `may_have_lanes`: whether prompts may run in a lane of their own.
std::int64_t accepted_by(
    const RandomModel& model,
    const std::function<std::vector<std::string>(const std::vector<std::string>&)>& drafting,
    bool may_have_lanes = true) {
  CAPTURE(model.path());
  std::int64_t accepted = 0, rejected = 0;
  const auto plain = answer_mixed(model, plain_options).answers;
  CHECK(plain.size() == 24);
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {"--parallel", "1", "--prefix-cache", "off", "--draft-steps", "1"},
           {"--parallel", "8", "--prefix-cache", "off", "--draft-steps", "7"},
           {"--parallel", "8", "--page-tokens", "32", "--draft-steps", "3"},
           {"--parallel", "5", "--memory-mode", "flip", "--draft-steps", "5", "--ubatch", "9"},
           {"--parallel", "8", "--pool-memory", "700KB", "--draft-steps", "5"},
           {"--parallel", "5", "--disaggregate", "--draft-steps", "4", "--draft-branches", "4",
            "--draft-tokens", "8"}}) {
    CAPTURE(options);
    std::vector<std::string> all = drafting(options);
    all.insert(all.end(), options.begin(), options.end());
    if (!may_have_lanes) std::erase(all, "--disaggregate");
    const MixedAnswers mixed = answer_mixed(model, all);
    CHECK(mixed.answers == plain);
    rejected += mixed.rejected;
    accepted += mixed.accepted;
  }
  CHECK(rejected > 400);
  return accepted;
}

}  // namespace

TEST_SUITE("app/surface_spec") {
  TEST_CASE("a batch's answers are the same where the model's own layer drafts") {
    std::int64_t accepted = 0;
    for (const std::string& name : drafting_models) {
      accepted += accepted_by(RandomModel(name), [](const std::vector<std::string>&) {
        return std::vector<std::string>{"--spec", "mtp"};
      });
    }
    CHECK(accepted > 20);
  }

  TEST_CASE("a batch's answers are the same where an EAGLE-3 head drafts") {
    std::int64_t accepted = 0;
    for (const std::string& name : models_with_heads) {
      const RandomHead small = RandomHead::eagle3(name, 90), whole = RandomHead::eagle3(name, 0);
      accepted += accepted_by(RandomModel(name), [&](const std::vector<std::string>& options) {
        const bool is_one = options[1] == "1";
        return std::vector<std::string>{"--spec", is_one ? "auto" : "eagle3", "--draft-model",
                                        is_one ? whole.path() : small.path()};
      });
    }
    CHECK(accepted > 20);
  }

  TEST_CASE("a batch's answers are the same where a DFlash head drafts") {
    std::int64_t accepted = 0;
    for (const std::string& name : models_with_blocks) {
      const RandomHead head = RandomHead::dflash(name, name != "lfm3");
      accepted += accepted_by(RandomModel(name), [&](const std::vector<std::string>& options) {
        return std::vector<std::string>{"--spec", options[1] == "1" ? "auto" : "dflash",
                                        "--draft-model", head.path()};
      });
    }
    CHECK(accepted > 20);
  }

  TEST_CASE("a batch's answers are the same where repeated text drafts") {
    for (const std::string& name : recurrent_models) {
      CAPTURE(name);
      const RandomModel model(name);
      const auto plain = answer_mixed(model, plain_options).answers;
      CHECK(plain.size() == 24);
      const auto with = [&](const std::vector<std::string>& options) {
        CAPTURE(options);
        CHECK(answer_mixed(model, options).answers == plain);
      };
      with({"--parallel", "8", "--spec", "ngram", "--draft-steps", "7"});
      with({"--parallel", "1", "--spec", "ngram", "--draft-steps", "3", "--prefix-cache", "off",
            "--page-tokens", "32"});
    }
  }

  TEST_CASE("a batch's answers are the same where branches of drafts are verified") {
    for (const std::string name :
         {"falcon-h1-groups", "granite-moe-nope", "lfm2-moe", "qwen3-next-odd", "gpt-oss"}) {
      CAPTURE(name);
      const RandomModel model(name);
      const auto plain = answer_mixed(model, plain_options).answers;
      CHECK(plain.size() == 24);
      check_answers(model, plain, {"--spec", "ngram", "--draft-branches", "4"},
                    {{"--parallel", "1", "--prefix-cache", "off", "--draft-steps", "4"},
                     {"--parallel", "1", "--draft-steps", "7", "--draft-tokens", "32"},
                     {"--parallel", "8", "--prefix-cache", "off", "--draft-steps", "2"},
                     {"--parallel", "8", "--draft-steps", "3", "--page-tokens", "32",
                      "--pool-memory", "900KB", "--audit"}});
    }
  }

  TEST_CASE("a batch's answers are the same with the tree of a draft layer: depth 4, top 4, 8") {
    const std::vector<std::string> tree = {"--spec",           "mtp", "--draft-steps",  "4",
                                           "--draft-branches", "4",   "--draft-tokens", "8"};
    for (const std::string& name : drafting_models) {
      CAPTURE(name);
      const RandomModel model(name);
      const auto plain = answer_mixed(model, plain_options).answers;
      const DraftCounts drafts =
          check_answers(model, plain, tree,
                        {{"--parallel", "1", "--prefix-cache", "off"},
                         {"--parallel", "8"},
                         {"--parallel", "8", "--prefix-cache", "off", "--page-tokens", "32"},
                         {"--parallel", "1", "--ubatch", "9", "--memory-mode", "flip"}});
      CHECK(drafts.rejected > 2'000);
      if (name == drafting_models.front() || name == drafting_models.back()) check_chat(name, tree);
    }
  }

  TEST_CASE("a tree that cannot be is refused, with what to say instead") {
    const auto error = [](const std::vector<std::string>& options) {
      std::vector<std::string> all = {"run", "demo", "-p", "x"};
      all.insert(all.end(), options.begin(), options.end());
      const ToolResult result = run_tool({.arguments = all});
      CHECK(result.exit_code == 2);
      return result.err;
    };
    CHECK(contains(error({"--draft-branches", "4"}), "how deep the tree is with --draft-steps"));
    CHECK(contains(error({"--draft-tokens", "8"}), "how wide with --draft-branches"));
    CHECK(contains(error({"--draft-branches", "4", "--draft-steps", "7", "--draft-tokens", "7"}),
                   "--draft-tokens 7: --draft-steps 7 alone takes 8"));
    CHECK(error({"--draft-branches", "9", "--draft-steps", "4"}) != "");
  }

  TEST_CASE("a batch's answers are the same where another model drafts, whatever the recurrences") {
    std::int64_t accepted = 0;
    for (const auto& [target, drafter] : drafted_by_another) {
      const RandomModel other(drafter);
      accepted += accepted_by(
          RandomModel(target),
          [&](const std::vector<std::string>&) {
            return std::vector<std::string>{"--spec", "draft", "--draft-model", other.path()};
          },
          /*may_have_lanes=*/false);
    }
    CHECK(accepted > 20);
  }

  TEST_CASE("a batch's answers are the same where a model drafts for itself, and most are right") {
    for (const std::string& name : self_drafting_models) {
      CAPTURE(name);
      const RandomModel model(name);
      const auto plain = answer_mixed(model, plain_options).answers;
      CHECK(plain.size() == 24);
      const auto with = [&](const std::vector<std::string>& options) {
        CAPTURE(options);
        std::vector<std::string> all = {"--spec", "draft", "--draft-model", model.path()};
        all.insert(all.end(), options.begin(), options.end());
        const MixedAnswers mixed = answer_mixed(model, all);
        CHECK(mixed.answers == plain);
        return mixed.accepted;
      };
      // Of 660 tokens, those drawn at temperature 0 at least.
      CHECK(with({"--parallel", "1", "--draft-steps", "3"}) > 80);
      CHECK(with({"--parallel", "8", "--prefix-cache", "off", "--draft-steps", "7"}) > 80);
      with({"--parallel", "4", "--draft-steps", "4", "--draft-branches", "4", "--ubatch", "9"});
      with({"--parallel", "4"});
    }
  }

  TEST_CASE("a model that drafts has the same vocabulary, and is counted") {
    const auto error = [](const std::vector<std::string>& options) {
      std::vector<std::string> all = {"run", "demo", "-p", "x"};
      all.insert(all.end(), options.begin(), options.end());
      const ToolResult result = run_tool({.arguments = all});
      CHECK(result.exit_code == 2);
      return result.err;
    };
    CHECK(contains(error({"--spec", "draft"}), "say which model with --draft-model"));
    CHECK(contains(error({"--spec", "mtp", "--draft-model", "demo"}), "leave one of them out"));
    CHECK(contains(error({"--draft-model", HYB_TESTS_DIR "/golden/lfm2-dense"}),
                   "its vocabulary is another: token 0 is \"<|pad|>\", not"));
    const std::string head = HYB_TESTS_DIR "/heads/llama-3";
    CHECK(contains(error({"--spec", "eagle3"}), "say which model with --draft-model"));
    CHECK(contains(error({"--spec", "eagle3", "--draft-model", "demo"}), "demo is a model, no"));
    for (const std::string spec : {"draft", "dflash"}) {
      CHECK(contains(error({"--spec", spec, "--draft-model", head}), "kind EAGLE-3; leave"));
    }
    CHECK(contains(error({"--spec", "eagle3", "--draft-model", head + "-dflash"}), "kind DFlash;"));
    const ToolResult other =
        run_tool({.arguments = {"run", "demo", "-p", "x", "--draft-model", head}});
    CHECK(other.exit_code == 3);
    CHECK(contains(other.err, "hidden_size: is 48, the model's is 128: this head is for another"));
    const auto pool_bytes = [](const std::vector<std::string>& options) {
      std::vector<std::string> all = {"fit", "demo", "--memory", "200MB", "--json"};
      all.insert(all.end(), options.begin(), options.end());
      return parse_json(run_tool({.arguments = all}).out, "fit")["pool_bytes"].get<double>();
    };
    const double alone = pool_bytes({}), shared = pool_bytes({"--draft-model", "demo"});
    CHECK(shared < alone - 25e6);
    CHECK(shared > alone / 4);
  }

  TEST_CASE("what was trained to draft for the demo is right more often than not") {
    const TemporaryFolder folder;
    std::string some;
    std::size_t number = 0;
    for (const Json& line : results(HYB_TESTS_DIR "/demo/heldout.jsonl")) {
      if (number++ % 25 == 0) some += to_text(Json{{"messages", line["messages"]}}) + "\n";
    }
    folder.write("in", some);
    const std::string in = (folder.path() / "in").string(), demo = HYB_TESTS_DIR "/demo/";
    const auto answer = [&](const std::string& model, std::vector<std::string> options) {
      const std::string out = (folder.path() / "out").string();
      std::filesystem::remove(out);
      options.insert(options.begin(), {"batch", model, in, "-o", out, "-n", "24"});
      const ToolResult result = run_tool({.arguments = options});
      CHECK_MESSAGE(result.exit_code == 0, result.err);
      int accepted = 0, rejected = 0;
      for (const Json& line : results(out)) {
        const Json usage = line["response"]["body"]["usage"];
        const Json details = usage.value("completion_tokens_details", Json::object());
        accepted += details.value("accepted_prediction_tokens", 0);
        rejected += details.value("rejected_prediction_tokens", 0);
      }
      return std::tuple(answers(out), accepted, rejected);
    };
    struct Case {
      std::string model;
      std::vector<std::string> drafting;
    };
    for (const Case& c : std::vector<Case>{{"demo", {"--draft-model", demo + "drafter"}},
                                           {"demo", {"--draft-model", demo + "eagle3"}},
                                           {demo + "mtp", {"--spec", "mtp"}}}) {
      CAPTURE(c.model);
      CAPTURE(c.drafting);
      const auto plain = std::get<0>(answer(c.model, {"--spec", "off"}));
      std::vector<std::string> one = c.drafting;
      one.insert(one.end(), {"--draft-steps", "1"});
      const auto [drafted, accepted, rejected] = answer(c.model, one);
      CHECK(drafted == plain);
      CHECK(accepted + rejected > 60);
      CHECK(accepted > rejected);  // of the drafter 71 of 103, of the others more
    }
  }

  TEST_CASE("a chat's answers: undo and regen and a loaded session go on from what is kept") {
    for (const std::string& name : drafting_models) {
      check_chat(name, {"--spec", "mtp", "--draft-steps", "3"});
    }
    for (const std::string name : {"granite-moe-nope", "lfm2-moe"}) {
      check_chat(name, {"--spec", "ngram", "--draft-steps", "5"});
    }
    for (const std::string& name : models_with_heads) {
      const RandomHead head = RandomHead::eagle3(name, 120);
      check_chat(name, {"--draft-model", head.path(), "--draft-steps", "3"});
    }
    for (const std::string& name : models_with_blocks) {
      const RandomHead head = RandomHead::dflash(name, name != "qwen3-dense");
      check_chat(name, {"--draft-model", head.path(), "--draft-steps", "3"});
    }
    for (const auto& [target, drafter] : drafted_by_another) {
      const RandomModel other(drafter);
      check_chat(target, {"--spec", "draft", "--draft-model", other.path(), "--draft-steps", "3"});
    }
  }

  TEST_CASE("a session goes between chats with a draft layer and chats without, or with another") {
    const std::string begin = "a long message for the first turn, and for all that follow\nand\n";
    const std::string end = "second message\n/regen\n/undo\nthird one\n/stats\n";
    const std::vector<std::string> mtp = {"--spec", "mtp", "--draft-steps", "3"};
    const std::vector<std::string> none = {"--spec", "off"};
    struct Case {
      std::string model;
      std::vector<std::string> drafts, others;
    };
    const RandomHead of_odd = RandomHead::eagle3("granite-odd", 90),
                     of_dense = RandomHead::eagle3("qwen3-dense", 90),
                     of_text = RandomHead::eagle3("qwen3_5-text", 90),
                     block = RandomHead::dflash("qwen3_5-text", false);
    const auto by = [](const RandomHead& head) {
      return std::vector<std::string>{"--draft-model", head.path(), "--draft-steps", "3"};
    };
    for (const Case& c : std::vector<Case>{{"nemotron-latent", mtp, none},
                                           {"qwen3-next-odd", mtp, none},
                                           {"qwen3_5-text", mtp, by(of_text)},
                                           {"qwen3_5-text", by(block), by(of_text)},
                                           {"granite-odd", by(of_odd), none},
                                           {"qwen3-dense", by(of_dense), none}}) {
      const RandomModel model(c.model);
      const Home home;
      const auto chat = [&](const std::string& input, std::vector<std::string> options) {
        options.insert(options.end(), {"--temperature", "0.7", "--seed", "3"});
        ToolResult result = home.hyb(model.arguments("chat", options), input);
        CHECK_MESSAGE(result.exit_code == 0, result.err);
        return result;
      };
      const std::string plain = chat(begin + end, none).out;
      for (const std::string snapshots : {"exact", "int8"}) {
        CAPTURE(c.model);
        CAPTURE(snapshots);
        const auto in_session = [&](const std::string& session, std::vector<std::string> options) {
          options.insert(options.end(),
                         {"--session", session + "-" + snapshots, "--snapshots", snapshots});
          return options;
        };
        for (const bool drafts_first : {true, false}) {
          const std::string session = drafts_first ? "to-others" : "to-drafts";
          const std::string saved =
              chat(begin, in_session(session, drafts_first ? c.drafts : c.others)).out;
          const ToolResult loaded =
              chat(end, in_session(session, drafts_first ? c.others : c.drafts));
          if (snapshots == "exact") CHECK(saved + loaded.out == plain);
          CHECK(!contains(loaded.err, "prefilled again"));
          CHECK(contains(loaded.err, " reused, "));
          CHECK(!contains(loaded.err, "(0 reused, "));
        }
      }
    }
  }
}

}  // namespace surface_spec_test
