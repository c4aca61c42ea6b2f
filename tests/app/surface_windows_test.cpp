// Models whose layers see a window, layers that read another's keys, and layers that draft:
// whatever is kept, shared, cut, moved or loaded, the answers are the same bytes.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "tests/app/batch_results.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_windows_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

/// A fixture's config.json with the tokenizer and the template of another; its weights are random.
struct WindowModel {
  explicit WindowModel(const std::string& fixture) {
    const std::filesystem::path golden = HYB_TESTS_DIR "/golden";
    Json config = parse_json(content(golden / fixture / "config.json"), "config.json");
    for (const char* key : {"vocab_size", "vocab_size_per_layer_input"}) {
      if (config.contains(key)) config[key] = 300;
    }
    config["max_position_embeddings"] = 4096;
    folder.write("config.json", config.dump());
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
      std::filesystem::copy(golden / "lfm2-dense" / name, folder.path() / name);
    }
  }

  /// Arguments of a command about this model, in which no answer ends early.
  std::vector<std::string> arguments(const std::string& command,
                                     const std::vector<std::string>& more) const {
    std::vector<std::string> all = {
        command, "-m", folder.path().string(), "--random-weights", "5",
        "-n",    "12", "--ignore-eos",         "--memory",         "200MB"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  TemporaryFolder folder;
};

const std::vector<std::string> models = {
    "cohere2",       "gpt-oss",         "gemma2", "gemma3n", "gemma4-moe",
    "gemma4-shared", "granite-swa-moe", "lfm3",   "llama4",  "mellum"};

/// Prompts of 50 to 300 tokens, of which neighbours share the beginning.
std::string requests() {
  const Json kinds = parse_json(R"([{"temperature":0},{"temperature":0.8,"seed":7},
      {"temperature":0.6,"seed":3,"frequency_penalty":0.7,"presence_penalty":0.4},
      {"temperature":0,"stop":["e","an"]},{"temperature":0.9,"seed":5,"n":2}])",
                                "kinds");
  std::string lines;
  for (std::size_t i = 0; i < 24; ++i) {
    Json body = kinds[i % kinds.size()];
    body["max_tokens"] = 16 + i;
    std::string text;
    for (std::size_t j = 0; j <= i % 3; ++j) {
      text += "The same text, that much of it, before question " + std::to_string(i / 6) + ", ";
    }
    body["messages"] = {{{"role", "user"}, {"content", text + std::to_string(i / 2)}}};
    lines += Json({{"custom_id", std::to_string(i)}, {"body", body}}).dump() + "\n";
  }
  return lines;
}

/// With these options a chat says what it says without drafts and prefixes, as one and as two that
/// have a session in common.
void check_chat(const std::string& name, const std::vector<std::string>& options) {
  CAPTURE(name);
  std::string first;
  for (int i = 0; i < 6; ++i) first += "a long message that many windows do not hold, ";
  const std::string begin = first + "\nsecond message\nthird one\n";
  const std::string end = "/undo\nanother third one\n/regen\nfourth\n";
  const WindowModel model(name);
  const auto chat = [&](const std::string& input, const std::vector<std::string>& more) {
    static const Home home;
    std::vector<std::string> all = model.arguments("chat", more);
    all.insert(all.end(), {"--temperature", "0.7", "--seed", "3"});
    ToolResult result = home.hyb(all, input);
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    return result;
  };
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), options.begin(), options.end());
    return more;
  };
  const std::string plain = chat(begin + end, {"--prefix-cache", "off", "--spec", "off"}).out;
  CHECK(chat(begin + end, with({})).out == plain);
  CHECK(chat(begin + end, with({"--ubatch", "19"})).out == plain);
  CHECK(chat(begin + end, with({"--page-tokens", "32", "--memory-mode", "flat"})).out == plain);
  CHECK(chat(begin + end, with({"--pool-memory", "900KB", "--audit"})).out == plain);
  const std::vector<std::string> session = with({"--session", "of-" + name});
  const std::string saved = chat(begin, session).out;
  const ToolResult loaded = chat(end + "/stats\n", session);
  CHECK(saved + loaded.out == plain);
  CHECK(contains(loaded.err, " reused, "));
  CHECK(!contains(loaded.err, "(0 reused, "));
}

}  // namespace

TEST_SUITE("app/surface_windows") {
  TEST_CASE("a batch's answers: prefixes, company, pages, drafts and scarce memory show nowhere") {
    for (const std::string& name : models) {
      CAPTURE(name);
      const WindowModel model(name);
      model.folder.write("in", requests());
      const std::string in = (model.folder.path() / "in").string();
      const std::string out = (model.folder.path() / "out").string();
      std::map<std::string, std::string> plain;
      for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
               {"--parallel", "1", "--prefix-cache", "off", "--spec", "off"},
               {"--parallel", "1"},
               {"--parallel", "8", "--threads", "2", "--ubatch", "7"},
               {"--parallel", "8", "--page-tokens", "32", "--spec", "ngram", "--draft-steps", "3"},
               {"--parallel", "5", "--page-tokens", "128", "--snapshots", "int8", "--ubatch", "33"},
               {"--parallel", "8", "--memory-mode", "flat"},
               {"--parallel", "8", "--memory-mode", "flip", "--audit"},
               {"--parallel", "8", "--pool-memory", "700KB", "--audit"}}) {
        std::filesystem::remove(out);
        std::vector<std::string> all = model.arguments("batch", {in, "-o", out});
        all.insert(all.end(), options.begin(), options.end());
        const ToolResult result = run_tool({.arguments = all});
        CHECK_MESSAGE(result.exit_code == 0, result.err);
        if (plain.empty()) plain = answers(out);
        CHECK(answers(out) == plain);
      }
      CHECK(plain.size() == 24);
    }
  }

  TEST_CASE("a batch's answers are the same where another model drafts, or the same one") {
    const WindowModel model("granite-swa-moe"), other("lfm3");
    model.folder.write("in", requests());
    const std::string in = (model.folder.path() / "in").string();
    const std::string out = (model.folder.path() / "out").string();
    const auto answers_with = [&](const std::vector<std::string>& options) {
      std::filesystem::remove(out);
      std::vector<std::string> all = model.arguments("batch", {in, "-o", out});
      all.insert(all.end(), options.begin(), options.end());
      const ToolResult result = run_tool({.arguments = all});
      CHECK_MESSAGE(result.exit_code == 0, result.err);
      return answers(out);
    };
    const auto accepted = [&] {
      std::int64_t sum = 0;
      for (const Json& line : results(out)) {
        const Json usage = line["response"]["body"]["usage"];
        sum += usage.value("completion_tokens_details", Json::object())
                   .value("accepted_prediction_tokens", 0);
      }
      return sum;
    };
    const auto plain = answers_with({"--parallel", "1", "--prefix-cache", "off", "--spec", "off"});
    CHECK(plain.size() == 24);
    const std::string self = model.folder.path().string(), second = other.folder.path().string();
    CHECK(answers_with({"--parallel", "1", "--draft-model", self, "--draft-steps", "3"}) == plain);
    CHECK(accepted() > 80);  // of 660 tokens, those drawn at temperature 0 at least
    CHECK(answers_with({"--parallel", "8", "--draft-model", self, "--draft-steps", "7",
                        "--audit"}) == plain);
    CHECK(answers_with({"--parallel", "8", "--spec", "draft", "--draft-model", second,
                        "--draft-steps", "5", "--pool-memory", "700KB"}) == plain);
    CHECK(answers_with({"--parallel", "4", "--draft-model", second}) == plain);
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
    const auto pool_bytes = [](const std::vector<std::string>& options) {
      std::vector<std::string> all = {"fit", "demo", "--memory", "200MB", "--json"};
      all.insert(all.end(), options.begin(), options.end());
      return parse_json(run_tool({.arguments = all}).out, "fit")["pool_bytes"].get<double>();
    };
    const double alone = pool_bytes({}), shared = pool_bytes({"--draft-model", "demo"});
    CHECK(shared < alone - 25e6);
    CHECK(shared > alone / 4);
  }

  TEST_CASE("a chat's answers: undo, regen and a session that is loaded go on from what is kept") {
    for (const std::string& name : models) check_chat(name, {});
    for (const std::string name : {"qwen3-next-odd", "qwen3_5-text"}) {
      check_chat(name, {"--spec", "mtp", "--draft-steps", "3"});
    }
  }
}

}  // namespace surface_windows_test
