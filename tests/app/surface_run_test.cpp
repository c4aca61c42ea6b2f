#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_run_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

const std::string fixture = HYB_TESTS_DIR "/golden/granite-dense-nope";

ToolResult tool(std::vector<std::string> arguments, std::string input = {}) {
  return run_tool({.arguments = std::move(arguments), .input = std::move(input)});
}

/// The fixture without its chat template.
void copy_without_template(const TemporaryFolder& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(fixture)) {
    const auto name = entry.path().filename();
    if (name == "chat_template.jinja" || name == "tokenizer_config.json") continue;
    std::filesystem::copy_file(entry.path(), folder.path() / name);
  }
}

std::filesystem::path copy_demo(const TemporaryFolder& folder) {
  const auto demo = std::filesystem::path(HYB_TESTS_DIR).parent_path() / "models/demo";
  std::filesystem::copy(demo, folder.path(), std::filesystem::copy_options::recursive);
  return folder.path();
}

/// Where the bytes of a tensor begin: the data end where the file does.
std::size_t place_in_file(const std::filesystem::path& path, const std::string& tensor) {
  const SafetensorsFile file(path);
  const std::size_t header = std::filesystem::file_size(path) - file.tensors().back().end;
  return header + file.find(tensor)->begin;
}

/// Writes `bytes` and returns what was there.
std::string exchange_bytes(const std::filesystem::path& path, std::size_t at, std::string bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::string before(bytes.size(), ' ');
  file.seekg(static_cast<std::streamoff>(at));
  file.read(before.data(), static_cast<std::streamsize>(before.size()));
  file.seekp(static_cast<std::streamoff>(at));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return before;
}

}  // namespace

TEST_SUITE("app/surface_run") {
  TEST_CASE("the answer is on stdout and nothing else, from -p, a file or stdin") {
    const ToolResult asked = tool({"run", "-n", "8", "-p", "Hello"});
    CHECK(asked.exit_code == 0);
    CHECK(asked.err.empty());
    CHECK(asked.out.size() > 1);
    CHECK(asked.out.back() == '\n');
    CHECK(tool({"run", "-n", "8"}, "Hello").out == asked.out);
    const TemporaryFolder folder;
    const std::string file = folder.write("prompt", "Hello").string();
    CHECK(tool({"run", "-n", "8", "--prompt-file", file}).out == asked.out);
    const std::string from_pipe = " /dev/fd/3 3<&0 < /dev/null";
    CHECK(run_shell("$HYB run -n 8 -f" + from_pipe, "Hello").out == asked.out);
    const ToolResult large = run_shell("$HYB run -p x --system-file" + from_pipe,
                                       std::string((std::size_t{16} << 20) + 1, 'x'));
    CHECK(large.exit_code == 3);
    CHECK(contains(large.err, "/dev/fd/3: has more than 16777216 bytes"));
    const ToolResult loud = tool({"run", "-n", "8", "-p", "Hello", "-v"});
    CHECK(loud.out == asked.out);
    CHECK(contains(loud.err, "tokens/s"));
  }

  TEST_CASE("nothing to answer is said and never waited for") {
    for (const char* command : {"run", "tokenize", "render"}) {
      CAPTURE(command);
      // A terminal on stdin, and no text: script(1) gives the program one.
      const ToolResult waiting =
          run_tool({.arguments = {"-qec", std::string(HYB_BINARY) + " " + command, "/dev/null"},
                    .program = "script"});
      CHECK(waiting.exit_code == 2);
    }
    const ToolResult empty = tool({"run", "-p", ""});
    CHECK(empty.exit_code == 2);
    CHECK(contains(empty.err, "empty"));
    CHECK(tool({"run"}, "").exit_code == 2);
    for (const char* command : {"run", "render --no-stdin"}) {
      CHECK(contains(run_shell(std::string("$HYB ") + command + " hello < /dev/null").err,
                     "\"hello\" is taken for the model; "));
    }
    for (const char* command : {"tokenize", "tokenize --decode", "render"}) {
      CHECK(contains(run_shell(std::string("$HYB ") + command + " hello < /dev/null").err,
                     "; a text is the word after MODEL, or given with -p TEXT"));
    }
    const ToolResult chat = tool({"chat", "What is 1 plus 1?"}, "");
    CHECK(chat.exit_code == 2);
    CHECK(contains(chat.err, "-p TEXT is the first message"));
    CHECK(tool({"tokenize", "--decode", "275"}).out ==
          tool({"tokenize", "--decode", "-p", "275"}).out);
  }

  TEST_CASE("the spellings that people bring give the same answer") {
    const std::string answer = tool({"run", "-n", "8", "-p", "Hello", "--system", "Be brief"}).out;
    const TemporaryFolder folder;
    const std::string prompt = folder.write("prompt", "Hello").string();
    const std::string system = folder.write("system", "Be brief").string();
    const std::vector<std::vector<std::string>> spellings = {
        {"run", "demo", "Hello", "-n", "8", "-sys", "Be brief"},
        {"run", "Hello", "-m", "demo", "--n-predict", "8", "--system-prompt", "Be brief"},
        {"run", "--model", "demo", "Hello", "-n", "8", "--system-file", system},
        {"run", "-f", prompt, "-n", "8", "-sysf", system, "--temp", "0", "-s", "3"},
        {"run", "--file", prompt, "-n", "8", "-sys", "Be brief", "-t", "1", "-c", "512"},
        {"run", "-p", "Hello", "-n", "8", "-sys", "Be brief", "--ctx-size", "512", "--quiet"},
        {"run", "-p", "Hello", "-n", "8", "-sys", "Be brief", "--memory", "1gb", "--color"},
        {"--color", "never", "run", "-p", "Hello", "-n", "8", "-sys", "Be brief"},
    };
    const ToolResult piped = run_shell("$HYB run demo Hello -n 8 --system-file -", "Be brief");
    CHECK(piped.out == answer);
    for (const auto& arguments : spellings) {
      CAPTURE(arguments[1]);
      const ToolResult result = tool(arguments);
      CHECK(result.exit_code == 0);
      CHECK(result.err == "");
      CHECK(result.out == answer);
    }
    const auto error = [](std::vector<std::string> arguments) {
      const ToolResult result = tool(std::move(arguments));
      CHECK(result.exit_code == 2);
      return result.err;
    };
    CHECK(contains(error({"run", "demo", "Hello", "-m", "demo"}), "the model is given twice"));
    CHECK(contains(error({"run", "demo", "Hello", "-p", "x"}), "the prompt is given twice"));
    CHECK(contains(error({"run", "demo", "two", "words"}), "goes into quotes"));
    CHECK(contains(error({"fit", "demo", "-m", "demo"}), "--model excludes model"));
    CHECK(contains(error({"batch", "-m", "demo", "a", "b", "-o", "c"}), "model is given twice"));
  }

  TEST_CASE("a question alone is the prompt, and - is stdin") {
    const std::string answer = tool({"run", "-n", "4", "-p", "What is red?"}).out;
    CHECK(tool({"run", "-n", "4", "What is red?"}).out == answer);
    for (const auto& words : std::vector<std::vector<std::string>>{
             {"-"}, {"demo", "-"}, {"-m", "demo", "-"}, {"-f", "-"}, {"-p", "-"}}) {
      std::vector<std::string> arguments = {"run", "-n", "4"};
      arguments.insert(arguments.end(), words.begin(), words.end());
      CHECK(tool(arguments, "What is red?").out == answer);
    }
    CHECK(tool({"run", "What is red?", "-p", "x"}).exit_code == 2);
    CHECK(tool({"run", "-n", "-1", "What is red?"}).exit_code == 0);
    CHECK(contains(tool({"run", "-n", "-2", "What is red?"}).err,
                   "is -1 or 1 to 2147483647, got -2"));
    CHECK(contains(tool({"run", "--messages", "-"}, R"([{"role":"user"}])").err,
                   "messages[0] has no content"));
  }

  TEST_CASE("a path with spaces to what is not there is no question") {
    for (const char* path : {"/models/My Model.gguf", "My Model.gguf", "x y.safetensors", "/x y",
                             "./x y", "../x y", "~/x y"}) {
      CAPTURE(path);
      const ToolResult result = tool({"run", "-n", "1", path}, "What is red?");
      CHECK(result.exit_code == 3);
      CHECK(result.out.empty());
    }
  }

  TEST_CASE("ids of answers differ, and there are times") {
    const Json one = Json::parse(tool({"run", "--json", "-n", "4", "What is red?"}).out);
    const Json other = Json::parse(tool({"run", "--json", "-n", "4", "What is red?"}).out);
    CHECK(one["id"] != other["id"]);
    CHECK(one["choices"] == other["choices"]);
    CHECK(one["timings"]["prompt_n"] == one["usage"]["prompt_tokens"]);
    CHECK(one["timings"]["prompt_ms"].get<double>() > 0.0);
  }

  TEST_CASE("stdin comes before the prompt and an empty line, unless it is left alone") {
    const auto rendered = [](std::vector<std::string> arguments, const std::string& input) {
      arguments.insert(arguments.begin(), "render");
      const bool reads_stdin = !input.empty() && arguments.back() != "--no-stdin";
      const ToolResult result = tool(std::move(arguments), input);
      CHECK(result.exit_code == 0);
      CHECK(contains(result.err, "stdin (8 bytes) comes before the prompt") == reads_stdin);
      return result.out;
    };
    const std::string both = rendered({"-p", "the text\n\nSummarize\n"}, "");
    const std::string alone = rendered({"-p", "Summarize"}, "");
    const TemporaryFolder folder;
    const std::string file = folder.write("prompt", "Summarize\n").string();
    CHECK(rendered({"-p", "Summarize\n"}, "the text") == both);
    CHECK(rendered({"demo", "Summarize\n"}, "the text") == both);
    CHECK(rendered({"-f", file}, "the text") == both);
    CHECK(rendered({"-p", "Summarize", "--no-stdin"}, "the text") == alone);
    const ToolResult nothing = tool({"render", "--no-stdin"}, "the text");
    CHECK(nothing.exit_code == 2);
    CHECK(contains(nothing.err, "no text"));

    const ToolResult loop = run_shell(
        "printf 'one\\ntwo\\n' | while read line; do $HYB render -p $line --no-stdin; done");
    CHECK(contains(loop.out, "one"));
    CHECK(contains(loop.out, "two"));
    const std::string lines = folder.write("lines", "one\ntwo\n").string();
    const ToolResult eaten = run_shell("while read line; do $HYB render -p $line; done < " + lines);
    CHECK(contains(eaten.err, "the rest of stdin is added to the prompt"));
    CHECK(contains(eaten.err, "--no-stdin"));
    CHECK(run_shell("$HYB render -p Summarize < /dev/null").out == alone);
    const ToolResult terminal = run_tool(
        {.arguments = {"-qec", std::string(HYB_BINARY) + " render -p Summarize", "/dev/null"},
         .program = "script"});
    CHECK(terminal.exit_code == 0);
    CHECK(!contains(terminal.out, "waiting"));
  }

  TEST_CASE("waiting for stdin is reported, and what ends it") {
    const ToolResult slow = run_shell("(sleep 1.3; echo late) | $HYB render -p x");
    CHECK(slow.exit_code == 0);
    CHECK(contains(slow.out, "late"));
    CHECK(contains(slow.err, "hyb: warning: waiting for stdin to end"));
    CHECK(contains(slow.err, "--no-stdin leaves it alone"));
    CHECK(std::count(slow.err.begin(), slow.err.end(), '\n') == 2);  // it came, at last
    CHECK(run_shell("sleep 0.1 | $HYB render -p x --no-stdin").err == "");
  }

  TEST_CASE("a text over 1 GiB is refused before it is read") {
    const TemporaryFolder folder;
    const std::string file = folder.write("large", "").string();
    std::filesystem::resize_file(file, (std::uintmax_t{1} << 30) + 1);  // no bytes on the disk
    const ToolResult result = run_shell("$HYB run < " + file);
    CHECK(result.exit_code == 3);
    CHECK(contains(result.err, "stdin: has more than 1073741824 bytes"));
    const ToolResult chat = run_shell("$HYB chat demo < /dev/zero");
    CHECK(chat.exit_code == 3);
    CHECK(contains(chat.err, "stdin: a line has more than 67108864 bytes"));
  }

  TEST_CASE("text that is not UTF-8 is named with its place") {
    const ToolResult result = tool({"run"}, "abc\xff");
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, "byte 3"));
    CHECK(tool({"tokenize"}, "a\xc3").exit_code == 2);
    CHECK(tool({"run", "--raw", "-p", "\xed\xa0\x80"}).exit_code == 2);
  }

  TEST_CASE("a reader that leaves is no failure, a full disk is one") {
    const ToolResult left = run_shell("$HYB run -n 400 --ignore-eos -p Hello | head -c 1; echo ok");
    CHECK(left.exit_code == 0);
    CHECK(left.err.empty());
    CHECK(contains(left.out, "ok"));
    for (const char* command : {"run -n 4 -p Hello", "run -n 4 --json -p Hello",
                                "tokenize -p Hello", "render -p Hello"}) {
      CAPTURE(command);
      const ToolResult full = run_shell("$HYB " + std::string(command) + " > /dev/full");
      CHECK(full.exit_code == 1);
      CHECK(contains(full.err, "stdout"));
    }
  }

  TEST_CASE("a limit on file sizes is named where it is in the way, and only there") {
    const ToolResult small = run_shell("ulimit -f 100; $HYB run -p Hello -n 2");
    CHECK(small.exit_code == 1);
    CHECK(contains(small.err, "the demo model can't be unpacked in memory: File too large"));
    CHECK(contains(small.err, "raise ulimit -f"));
    for (const char* mode : {"remap", "flip", "flat"}) {
      CAPTURE(mode);
      const ToolResult enough =
          run_shell(std::string("ulimit -f 10000; $HYB run -p Hello -n 2 --memory-mode ") + mode);
      CHECK(enough.exit_code == 0);  // the pools are larger than that
    }
  }

  TEST_CASE("models that cannot be opened exit with 3 and a reason") {
    const TemporaryFolder folder;
    const std::string path = folder.path().string();
    CHECK(tool({"run", path, "-p", "x"}).exit_code == 3);
    folder.write("config.json", R"({"model_type":"martian","architectures":["Martian"]})");
    const ToolResult unknown = tool({"run", path, "-p", "x"});
    CHECK(unknown.exit_code == 3);
    CHECK(contains(unknown.err, "martian"));
    CHECK(contains(unknown.err, "granitemoehybrid"));
    // What no memory could help is said first.
    const ToolResult other = tool({"run", "qwen3-next-80b-a3b", "-p", "x", "--memory", "1MB"});
    CHECK(other.exit_code == 3);
    CHECK(contains(other.err, "qwen3-next-80b-a3b is the configuration of a published model"));
    CHECK(contains(other.err, "hyb bench --random-weights SEED"));
    CHECK(tool({"run", "/nonexistent", "-p", "x"}).exit_code == 3);
    CHECK(tool({"run", "--prompt-file", "/nonexistent"}).exit_code == 3);
    CHECK(tool({"tokenize", path, "-p", "x"}).exit_code == 3);
    for (const char* missing : {"model.safetensors", "config.json", "tokenizer.json"}) {
      CAPTURE(missing);
      const TemporaryFolder part;
      for (const auto& entry : std::filesystem::directory_iterator(fixture)) {
        if (entry.path().filename() == missing) continue;
        std::filesystem::copy_file(entry.path(), part.path() / entry.path().filename());
      }
      const ToolResult result = tool({"run", part.path().string(), "-p", "x"});
      CHECK(result.exit_code == 3);
      CHECK(result.out.empty());
      CHECK(contains(result.err, missing));
    }
  }

  TEST_CASE("weights and tokenizers in other formats are named, with what hyb reads") {
    const auto error = [](const std::filesystem::path& model) {
      const ToolResult result = tool({"run", model.string(), "-p", "x"});
      CHECK(result.exit_code == 3);
      return result.err;
    };
    const TemporaryFolder gguf;
    const auto file = gguf.write("model-Q4_K_M.gguf", "GGUF");
    CHECK(contains(error(file), "model-Q4_K_M.gguf: the version of 4 bytes goes past the end"));
    CHECK(contains(error(gguf.path()), "model-Q4_K_M.gguf: the version of 4 bytes goes past"));
    CHECK(contains(error(gguf.write("model.safetensors", "")), "give the folder that holds it"));

    const TemporaryFolder pickle;
    std::filesystem::copy_file(fixture + "/config.json", pickle.path() / "config.json");
    pickle.write("pytorch_model-00001-of-00002.bin", "");
    CHECK(contains(error(pickle.path()), "a pickle of PyTorch, which is not read"));

    const TemporaryFolder pieces;
    copy_demo(pieces);
    std::filesystem::rename(pieces.path() / "tokenizer.json", pieces.path() / "tokenizer.model");
    CHECK(contains(error(pieces.path()), "There is a tokenizer.model, which is not read"));
  }

  TEST_CASE("pointers of Git LFS and adapters are named in place of a model's files") {
    const std::string pointer =
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
    for (const char* name : {"model.safetensors", "tokenizer.json", "tokenizer_config.json",
                             "config.json", "generation_config.json", "chat_template.jinja"}) {
      CAPTURE(name);
      const TemporaryFolder folder;
      std::filesystem::copy(fixture, folder.path());
      folder.write(name, pointer);
      const ToolResult result = tool({"run", folder.path().string(), "-p", "x"});
      CHECK(result.exit_code == 3);
      CHECK(contains(result.err, std::string(name) + ": is a pointer of Git LFS"));
    }
    const TemporaryFolder adapter;
    adapter.write("adapter_config.json", R"({"peft_type":"LORA"})");
    adapter.write("adapter_model.safetensors", safetensors_bytes("{}", ""));
    const auto error = [&] {
      const ToolResult result = tool({"run", adapter.path().string(), "--raw", "-p", "x"});
      CHECK(result.exit_code == 3);
      return result.err;
    };
    CHECK(contains(error(), "has no config.json; \"adapter_model.safetensors\" is an adapter"));
    std::filesystem::copy_file(fixture + "/config.json", adapter.path() / "config.json");
    CHECK(contains(error(), "holds no model.safetensors and no"));
    CHECK(contains(error(), "is an adapter"));
    const TemporaryFolder part;
    std::filesystem::copy_file(fixture + "/config.json", part.path() / "config.json");
    CHECK(contains(tool({"run", part.path().string(), "--raw", "-p", "x"}).err,
                   "; its download is not complete; "));
    std::filesystem::copy_file(fixture + "/model.safetensors",
                               adapter.path() / "model.safetensors");
    CHECK(contains(error(), "beside the weights, \"adapter_model.safetensors\" is an adapter"));
    std::filesystem::rename(adapter.path() / "model.safetensors",
                            adapter.path() / "model-1.safetensors");
    adapter.write("model.safetensors.index.json",
                  R"({"weight_map":{"model.embed_tokens.weight":"model-1.safetensors",)"
                  R"("model.visual.a.weight":"model-2.safetensors"}})");
    CHECK(contains(error(), "beside the weights"));  // though a file of vision alone is missing
  }

  TEST_CASE("weights with a NaN fail the request and are never answered from") {
    const TemporaryFolder folder;
    const std::filesystem::path weights = copy_demo(folder) / "model.safetensors";
    for (const char* name : {"model.layers.0.block_sparse_moe.router.layer.weight",
                             "model.layers.0.mamba.A_log", "model.norm.weight"}) {
      CAPTURE(name);
      const std::size_t at = place_in_file(weights, name);
      const std::string good = exchange_bytes(weights, at, "\xc0\x7f");  // a bf16 NaN
      const ToolResult result = tool({"run", folder.path().string(), "-n", "4", "-p", "Hello"});
      CHECK(result.exit_code == 1);
      CHECK(result.out == "");
      CHECK(contains(result.err, "NaN logits"));
      const ToolResult verified =
          tool({"verify", folder.path().string(), "--prompts", "2", "-n", "2", "--length", "12"});
      CHECK(verified.exit_code == 6);
      CHECK(contains(verified.out, "FAILED  logits are numbers"));
      exchange_bytes(weights, at, good);
    }
    // The message of a chat is kept, and answered when that can be done.
    const Home home;
    const std::size_t at = place_in_file(weights, "model.norm.weight");
    const std::string good = exchange_bytes(weights, at, "\xc0\x7f");
    const ToolResult failed = home.chat(folder.path().string(), "Hello\n", {"--session", "s"});
    CHECK(failed.exit_code == 1);
    CHECK(contains(failed.err, "NaN logits"));
    CHECK(contains(failed.err, "; the message is kept, /regen answers it again"));
    exchange_bytes(weights, at, good);
    CHECK(home.hyb({"sessions", "show", "s"}).out == "user: Hello\n\nassistant (stopped): \n");
    const std::string answer = home.chat(folder.path().string(), "Hello\n").out;
    CHECK(home.chat(folder.path().string(), "/regen\n", {"--session", "s"}).out == answer);
    CHECK(tool({"run", folder.path().string(), "-n", "4", "-p", "Hello"}).exit_code == 0);
  }

  TEST_CASE("weights of the family for which config.json has no place are refused") {
    const TemporaryFolder folder;
    const std::filesystem::path config = copy_demo(folder) / "config.json";
    Json json = parse_json(read_whole_file(config, 1U << 20), "config.json");
    json["num_local_experts"] = 0;
    folder.write("config.json", to_text(json));
    const ToolResult result = tool({"run", folder.path().string(), "-n", "1", "-p", "Hello"});
    CHECK(result.exit_code == 3);
    CHECK(contains(result.err, "for which config.json has no place"));
    const ToolResult inspected = tool({"inspect", folder.path().string()});
    CHECK(inspected.exit_code == 3);
    CHECK(contains(inspected.out, "for which config.json has no place"));
  }

  TEST_CASE("wrong options are usage errors") {
    const std::vector<std::vector<std::string>> wrong = {
        {"run", "-p", "x", "--temperature", "-1"},    {"run", "-p", "x", "-n", "0"},
        {"run", "-p", "x", "--top-p", "2"},           {"run", "-p", "x", "--stop", ""},
        {"run", "-p", "x", "--choices", "2"},         {"run", "-p", "x", "--logprobs", "2"},
        {"run", "-p", "x", "--raw", "--system", "y"}, {"run", "-p", "x", "--logit-bias", "a"},
        {"run", "-p", "x", "--memory", "much"},       {"run", "-p", "x", "--no-such-option"},
        {"run", "-p", "x", "--prompt-file", "y"},     {"run", "-p", "x", "--allow-special"},
        {"run", "-p", "x", "--seed", "-1"},           {"run", "-p", "x", "--random-weights", "-1"}};
    for (const auto& arguments : wrong) {
      CAPTURE(arguments.back());
      const ToolResult result = tool(arguments);
      CHECK(result.exit_code == 2);
      CHECK(result.out.empty());
      CHECK_FALSE(result.err.empty());
    }
    CHECK(tool({"run", "-p", "x", "--memory", "1KiB"}).exit_code == 4);
  }

  TEST_CASE("--json is one OpenAI object") {
    const ToolResult result = tool({"run", "-n", "6", "-p", "Hello", "--json", "--choices", "2",
                                    "--logprobs", "3", "--ignore-eos"});
    REQUIRE(result.exit_code == 0);
    const Json json = parse_json(result.out, "stdout");
    CHECK(json["object"] == "chat.completion");
    CHECK(json["id"].get<std::string>().starts_with("chatcmpl-"));
    CHECK(json["model"] == "demo");
    REQUIRE(json["choices"].size() == 2);
    CHECK(json["choices"][0]["message"]["content"] == json["choices"][1]["message"]["content"]);
    CHECK(json["choices"][0]["finish_reason"] == "length");
    CHECK(json["choices"][0]["logprobs"]["content"].size() == 6);
    const Json ended = Json::parse(
        tool({"run", "What is 12 plus 30?", "--json", "--logprobs", "0", "--dtype", "bfloat16"})
            .out);
    std::string text;
    for (const Json& token : ended["choices"][0]["logprobs"]["content"]) {
      text += token["token"].get<std::string>();
    }
    CHECK(text == "12 plus 30 is 42.");
    CHECK(text == ended["choices"][0]["message"]["content"]);
    CHECK(json["choices"][0]["logprobs"]["content"][0]["top_logprobs"].size() == 3);
    CHECK(json["usage"]["completion_tokens"] == 12);
    const Json raw =
        parse_json(tool({"run", "-n", "2", "-p", "x", "--json", "--raw"}).out, "stdout");
    CHECK(raw["object"] == "text_completion");
    CHECK(raw["choices"][0]["text"].is_string());
    CHECK(raw["choices"][0]["logprobs"].is_null());
  }

  TEST_CASE("guessed tokens change no answer, and are counted") {
    const std::string repeated = "one two three one two three one two three";
    const auto run = [&](const std::string& spec, const std::vector<std::string>& more) {
      std::vector<std::string> arguments = {"run",    "-p",           repeated, "--raw",
                                            "--json", "--logprobs",   "2",      "-n",
                                            "60",     "--ignore-eos", "--spec", spec};
      arguments.insert(arguments.end(), more.begin(), more.end());
      const ToolResult result = tool(arguments);
      REQUIRE(result.exit_code == 0);
      return parse_json(result.out, "answer");
    };
    for (const std::vector<std::string>& more :
         std::vector<std::vector<std::string>>{{},
                                               {"--temperature", "0.8", "--seed", "7"},
                                               {"--choices", "2", "--frequency-penalty", "0.4"}}) {
      const std::vector<std::string>& options = more;
      const Json plain = run("off", options);
      CHECK(!plain["usage"].contains("completion_tokens_details"));
      for (const char* steps : {"1", "7", "auto"}) {
        std::vector<std::string> with = options;
        with.insert(with.end(), {"--draft-steps", steps});
        CHECK(run("ngram", with)["choices"] == plain["choices"]);
      }
    }
    const Json greedy = run("ngram", {"--draft-steps", "7"});
    CHECK(greedy["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 0);
    // A fixed number of drafts: how many pay on this machine at this minute is not the test's.
    const ToolResult stats = tool({"run", "-p", repeated, "--raw", "-n", "60", "--ignore-eos",
                                   "--spec", "ngram", "--draft-steps", "3", "-v"});
    CHECK(contains(stats.err, " accepted (by position "));
    CHECK(contains(stats.err, " tokens a step, made in "));
    CHECK(tool({"run", "-p", "Hello", "--spec", "mtp"}).exit_code == 2);
    CHECK(tool({"run", "-p", "Hello", "--draft-steps", "8"}).exit_code == 2);
  }

  TEST_CASE("bytes of logprobs are a token's own, also of a part of a character") {
    const ToolResult parts = tool({"tokenize", "-p", "\u00e9", "--json"});
    const Json ids = parse_json(parts.out, "stdout");
    REQUIRE(ids.size() == 2);
    const std::string bias = to_text(ids[0]) + "=100";
    const ToolResult result =
        tool({"run", "-p", "x", "-n", "1", "--json", "--logprobs", "0", "--logit-bias", bias});
    const Json token = parse_json(result.out, "stdout")["choices"][0]["logprobs"]["content"][0];
    CHECK(token["id"] == ids[0]);
    CHECK(token["token"] == "\uFFFD");
    CHECK(token["bytes"] == Json::array({0xC3}));
  }

  TEST_CASE("a prompt over the limit says by how much, and can be cut") {
    std::string long_text;
    for (int i = 0; i < 300; ++i) long_text += "word ";
    const std::vector<std::string> common = {"run", "-n", "4", "--raw", "--context", "64"};
    const ToolResult refused = tool(common, long_text);
    CHECK(refused.exit_code == 2);
    CHECK(contains(refused.err, "more than"));
    CHECK(contains(refused.err, "--truncate"));
    for (const char* side : {"left", "right"}) {
      std::vector<std::string> arguments = common;
      arguments.insert(arguments.end(), {"--truncate", side});
      CHECK(tool(arguments, long_text).exit_code == 0);
    }
  }

  TEST_CASE("without a chat template, --raw is the way") {
    const TemporaryFolder folder;
    copy_without_template(folder);
    const std::string model = folder.path().string();
    const ToolResult chat = tool({"run", model, "-n", "2", "-p", "x"});
    CHECK(chat.exit_code == 3);
    CHECK(contains(chat.err, "--raw"));
    CHECK(tool({"run", model, "-n", "2", "-p", "x", "--raw"}).exit_code == 0);
    CHECK(tool({"render", model, "-p", "x"}).exit_code == 3);
  }

  TEST_CASE("tokenize and its inverse") {
    const std::string text = "Hello  wörld\n\tx";
    const ToolResult ids = tool({"tokenize", "--ids", "--bare", "-p", text});
    REQUIRE(ids.exit_code == 0);
    CHECK(tool({"tokenize", "--decode"}, ids.out).out == text);
    const Json json = parse_json(tool({"tokenize", "--json", "--bare", "-p", text}).out, "stdout");
    CHECK(tool({"tokenize", "--count", "--bare", "-p", text}).out ==
          std::to_string(json.size()) + "\n");
    const ToolResult table = tool({"tokenize", "--bare", "-p", text});
    CHECK(static_cast<std::size_t>(std::count(table.out.begin(), table.out.end(), '\n')) ==
          json.size());
    CHECK(tool({"tokenize", "--json", "--lines", "--bare"}, "a\n\nb\n").out ==
          tool({"tokenize", "--json", "--bare", "-p", "a"}).out + "[]\n" +
              tool({"tokenize", "--json", "--bare", "-p", "b"}).out);
    const std::string halves = tool({"tokenize", "--bare", "-p", "\u00e9"}).out;
    CHECK(contains(halves, "\"<0xC3>\"\n"));
    CHECK(contains(halves, "\"<0xA9>\"\n"));
    CHECK(tool({"tokenize", "--decode"}, "99999999").exit_code == 2);
    CHECK(tool({"tokenize", "--decode"}, "1 x").exit_code == 2);
    CHECK(tool({"tokenize", "--ids", "--json", "-p", "x"}).exit_code == 2);
  }

  TEST_CASE("render prints what the model would read") {
    const ToolResult rendered = tool({"render", "-p", "Hello there", "--system", "Be brief"});
    CHECK(rendered.exit_code == 0);
    CHECK(contains(rendered.out, "Hello there"));
    CHECK(contains(rendered.out, "Be brief"));
    const ToolResult from_json = tool({"render", "--messages", "-"},
                                      R"({"messages":[{"role":"system","content":"Be brief"},)"
                                      R"({"role":"user","content":"Hello there"}]})");
    CHECK(from_json.exit_code == 0);
    CHECK(from_json.out == rendered.out);
    CHECK(tool({"render", "--messages", "-"}, "no json").exit_code != 0);
  }
}

}  // namespace surface_run_test
