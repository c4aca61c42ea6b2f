#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/engine/request.h"
#include "tests/app/batch_results.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace hyb::testing {

/// A fixture's config.json with the tokenizer and the template of another; its weights are random.
struct RandomModel {
  explicit RandomModel(const std::string& fixture) {
    const std::filesystem::path golden = HYB_TESTS_DIR "/golden";
    // As text: a published config.json may hold Infinity.
    std::string config = content(golden / fixture / "config.json");
    const std::regex sizes(R"x("(vocab_size|vocab_size_per_layer_input)": *\d+)x");
    config = std::regex_replace(config, sizes, "\"$1\": 300");
    const std::regex positions(R"x("max_position_embeddings": *\d+)x");
    if (std::regex_search(config, positions)) {
      config = std::regex_replace(config, positions, R"("max_position_embeddings": 4096)");
    } else {
      config.replace(config.find('{'), 1, R"({"max_position_embeddings": 4096,)");
    }
    folder.write("config.json", config);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
      std::filesystem::copy(golden / "lfm2-dense" / name, folder.path() / name);
    }
  }

  std::string path() const { return folder.path().string(); }

  /// Arguments of a command about this model, in which no answer ends early.
  std::vector<std::string> arguments(const std::string& command,
                                     const std::vector<std::string>& more) const {
    std::vector<std::string> all = {command, "-m", path(),         "--random-weights", "5",
                                    "-n",    "12", "--ignore-eos", "--memory",         "200MB"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  TemporaryFolder folder;
};

/// config.json of a head for the RandomModel of a fixture; its weights are random as well.
struct RandomHead {
  /// An EAGLE-3 head; `draft_vocab`: its tokens; 0: all of the model's.
  static RandomHead eagle3(const std::string& fixture, std::int32_t draft_vocab) {
    Json own = parse_json(R"({"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
        "intermediate_size": 40, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
        "num_hidden_layers": 1, "rms_norm_eps": 1e-5, "vocab_size": 300,
        "eagle_aux_hidden_state_layer_ids": [0, 1, 2], "max_position_embeddings": 4096})",
                          "head");
    if (draft_vocab > 0) own["draft_vocab_size"] = draft_vocab;
    return RandomHead(fixture, std::move(own));
  }

  /// A DFlash head of two layers: one that sees its block, and one with a window or another such.
  static RandomHead dflash(const std::string& fixture, bool has_window) {
    Json own = parse_json(R"({"architectures": ["DFlashDraftModel"], "model_type": "qwen3",
        "block_size": 8, "dflash_config": {"mask_token_id": 5, "target_layer_ids": [0, 1]},
        "intermediate_size": 40, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
        "layer_types": ["full_attention", "full_attention"], "sliding_window": 24,
        "num_hidden_layers": 2, "rms_norm_eps": 1e-5, "vocab_size": 300,
        "max_position_embeddings": 4096})",
                          "head");
    if (has_window) own["layer_types"][0] = "sliding_attention";
    return RandomHead(fixture, std::move(own));
  }

  std::string path() const { return folder.path().string(); }

  TemporaryFolder folder;

 private:
  RandomHead(const std::string& fixture, Json own) {
    const std::string config = content(HYB_TESTS_DIR "/golden/" + fixture + "/config.json");
    std::smatch width;
    REQUIRE(std::regex_search(config, width, std::regex(R"x("hidden_size": *(\d+))x")));
    own["hidden_size"] = std::stoi(width[1]);
    folder.write("config.json", own.dump());
  }
};

/// Prompts of 50 to 300 tokens, of which neighbours share the beginning.
inline std::string mixed_requests() {
  const Json kinds = parse_json(R"([{"temperature":0},{"temperature":0.8,"seed":7},
      {"temperature":0.6,"seed":3,"frequency_penalty":0.7,"presence_penalty":0.4},
      {"temperature":0,"stop":["e","an"]},{"temperature":0.9,"seed":5,"n":2},
      {"temperature":0.9,"seed":9,"guided_regex":"([a-f ]{2,9}[,.]){1,9}","n":2},
      {"temperature":0,"response_format":{"type":"json_object"},"min_tokens":4}])",
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

/// What a batch of mixed_requests() answers.
struct MixedAnswers {
  std::map<std::string, std::string> answers;  ///< by custom_id
  std::int64_t accepted = 0, rejected = 0;     ///< drafts
};

inline MixedAnswers answer_mixed(const RandomModel& model,
                                 const std::vector<std::string>& options) {
  const std::filesystem::path in = model.folder.path() / "in", out = model.folder.path() / "out";
  model.folder.write("in", mixed_requests());
  std::filesystem::remove(out);
  std::vector<std::string> all = model.arguments("batch", {in.string(), "-o", out.string()});
  all.insert(all.end(), options.begin(), options.end());
  const ToolResult result = run_tool({.arguments = all, .time_max = std::chrono::seconds(900)});
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  MixedAnswers mixed{.answers = answers(out)};
  for (const Json& line : results(out)) {
    const Json usage = line["response"]["body"]["usage"];
    const Json details = usage.value("completion_tokens_details", Json::object());
    mixed.accepted += details.value("accepted_prediction_tokens", 0);
    mixed.rejected += details.value("rejected_prediction_tokens", 0);
  }
  return mixed;
}

/// Answers with the common options and each of the others; all are `expected`. All drafts of them.
inline DraftCounts check_answers(const RandomModel& model,
                                 const std::map<std::string, std::string>& expected,
                                 const std::vector<std::string>& common,
                                 const std::vector<std::vector<std::string>>& others) {
  DraftCounts drafts;
  for (const std::vector<std::string>& options : others) {
    CAPTURE(options);
    std::vector<std::string> all = common;
    all.insert(all.end(), options.begin(), options.end());
    const MixedAnswers mixed = answer_mixed(model, all);
    CHECK(mixed.answers == expected);
    drafts.accepted += mixed.accepted;
    drafts.rejected += mixed.rejected;
  }
  return drafts;
}

/// With these options a chat says what it says without drafts and prefixes, as one and as two that
/// have a session in common.
inline void check_chat(const std::string& name, const std::vector<std::string>& options) {
  CAPTURE(name);
  std::string first;
  for (int i = 0; i < 6; ++i) first += "a long message that many windows do not hold, ";
  const std::string begin = first + "\nsecond message\nthird one\n";
  const std::string end = "/undo\nanother third one\n/regen\nfourth\n";
  const RandomModel model(name);
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
  static int sessions = 0;  // of all models in one home
  const std::vector<std::string> session =
      with({"--session", "of-" + name + "-" + std::to_string(++sessions)});
  const std::string saved = chat(begin, session).out;
  const ToolResult loaded = chat(end + "/stats\n", session);
  CHECK(saved + loaded.out == plain);
  CHECK(contains(loaded.err, " reused, "));
  CHECK(!contains(loaded.err, "(0 reused, "));
}

}  // namespace hyb::testing
