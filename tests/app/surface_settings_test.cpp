#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_settings_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

const std::string other_model = HYB_TESTS_DIR "/golden/granite-dense-nope";

/// A home with this file of settings.
struct SettingsHome {
  explicit SettingsHome(const std::string& settings)
      : file(folder.write("config/hyb/config.toml", settings).string()) {}

  ToolResult hyb(std::vector<std::string> arguments, const std::string& input = "",
                 std::map<std::string, std::string> environment = {}) const {
    environment.emplace("XDG_CONFIG_HOME", folder.path() / "config");
    environment.emplace("XDG_DATA_HOME", folder.path() / "data");
    return run_tool(
        {.arguments = std::move(arguments), .input = input, .environment = std::move(environment)});
  }

  /// What /set or /system of a chat shows.
  std::string chat(std::vector<std::string> arguments, const std::string& input) const {
    arguments.insert(arguments.begin(), "chat");
    const ToolResult result = hyb(std::move(arguments), input);
    CHECK(result.exit_code == 0);
    return result.err;
  }

  TemporaryFolder folder;
  std::string file;
};

}  // namespace

TEST_SUITE("app/surface_settings") {
  TEST_CASE("flags win over a model's section, which wins over what is for all models") {
    const SettingsHome home(
        "think = false\ntemperature = 0.5\nsystem = \"Be # short.\"\nmax_tokens = 2\n"
        "stop = [\"x,y\", \"z\"]\n[chat]\ntop_k = 7\n[run]\nseed = 8\n"
        "[de*]\ntemperature = 0.75\n[other]\ntop_p = 0.5\n");
    const std::string set = home.chat({}, "/set\n/system\n");
    CHECK(contains(set, "temperature          0.75\n"));
    CHECK(contains(set, "top_k                7\n"));
    CHECK(contains(set, "top_p                1\n"));
    CHECK(contains(set, "seed                 0\n"));
    CHECK(contains(set, "max_tokens           2\n"));
    CHECK(contains(set, "stop                 \"x,y\", \"z\"\n"));
    CHECK(contains(set, "system: Be # short.\n"));
    const std::string flags =
        home.chat({"--temp", "0.25", "--system", "x"}, "/set temp\n/system\n");
    CHECK(flags == "  temperature          0.25\nsystem: x\n");
    const auto tokens = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.begin(), {"run", "What is 1 plus 1?", "--json"});
      return parse_json(home.hyb(std::move(arguments)).out, "out")["usage"]["completion_tokens"];
    };
    CHECK(tokens({}) == 2);
    CHECK(tokens({"-n", "3"}) == 3);
    CHECK(tokens({"-n", "3", "--temp", "0", "--config", "/dev/null"}) == 3);
    const ToolResult bare = home.hyb({"run", "What is 1 plus 1?", "--config", "/dev/null"});
    CHECK(bare.out == "1 plus 1 is 2.\n");
    CHECK(home.hyb({"run", "--raw", "What is"}).exit_code == 0);  // without the system prompt
    CHECK(home.hyb({"run", "--raw", "What is", "--system", "x"}).exit_code == 2);
    const ToolResult messages =
        home.hyb({"run", "--messages", "-"}, R"([{"role": "user", "content": "hello"}])");
    CHECK(messages.exit_code == 0);
  }

  TEST_CASE("the file names the model; other commands do not read it") {
    const SettingsHome home("model = \"" + other_model + "\"\n[granite-dense-*]\nmax-tokens = 3\n");
    CHECK(contains(home.hyb({"run", "hi there", "--json"}).out, "granite-dense-nope"));
    CHECK(contains(home.hyb({"run", "demo", "hi there", "--json"}).out, "\"model\":\"demo\""));
    CHECK(contains(home.chat({}, "/set max_tokens\n"), " 3\n"));
    CHECK(contains(home.chat({"demo"}, "/set max_tokens\n"), "no limit"));
    CHECK(contains(home.hyb({"tokenize", "What is 1"}).out, "\"What\""));  // demo's
    const ToolResult batch = home.hyb({"batch", "-", "-o", "-", "-q"}, "What is 1 plus 1?\n");
    CHECK(contains(batch.out, "1 plus 1 is 2."));
  }

  TEST_CASE("a saved chat keeps its model and system prompt, a new one has those of the file") {
    const SettingsHome home("system = \"first\"\nmodel = \"demo\"\n");
    home.chat({other_model, "--session", "s", "-n", "2"}, "hello\n");
    home.folder.write("config/hyb/config.toml",
                      "system = \"second\"\nmodel = \"demo\"\n[granite*]\nmax-tokens = 4\n");
    CHECK(home.chat({"--session", "s"}, "/system\n/set max_tokens\n") ==
          "system: first\n  max_tokens           4\n");
    CHECK(home.chat({"--session", "s", "--system", "third"}, "/system\n") == "system: third\n");
    CHECK(home.chat({"--session", "new"}, "/system\n") == "system: second\n");
  }

  TEST_CASE("what is wrong in the file is named with file, line and key") {
    const auto trouble = [](const std::string& settings) {
      const SettingsHome home(settings);
      const ToolResult result = home.hyb({"run", "hi there"});
      CHECK(result.exit_code == 3);
      CHECK(result.out.empty());
      const ToolResult doctor = home.hyb({"doctor", "--json"});
      CHECK(doctor.exit_code == 3);
      const std::string said = parse_json(doctor.out, "doctor")["settings"]["trouble"];
      CHECK(contains(result.err, said));
      CHECK(said.starts_with(home.file + ":"));
      return said.substr(home.file.size());
    };
    CHECK(trouble("\ntemprature = 1\n") ==
          ":2: unknown setting \"temprature\", the nearest is temperature");
    CHECK(contains(trouble("zzzzzzzz = 1\n"), "unknown setting \"zzzzzzzz\""));
    CHECK(trouble("[chat]\nraw = true\n").starts_with(":2: unknown setting \"raw\""));
    CHECK(trouble("[bench]\nthreads = 1\n") == ":2: [bench]: only chat and run have settings");
    CHECK(trouble("prompt = \"x\"\n") == ":1: prompt is for the command line alone");
    CHECK(trouble("device = \"gpu\"\n").starts_with(":1: --device: gpu not in"));
    CHECK(trouble("memory = \"8GiBB\"\n").starts_with(":1: --memory: '8GiBB' is not a size"));
    CHECK(trouble("top_k = \"many\"\n").starts_with(":1: "));
    CHECK(trouble("temperature = \"hot\"\n") ==
          ":1: 'hot' is not a number that --temperature takes");
    CHECK(trouble("ignore_eos = 3\n").starts_with(":1: "));
    CHECK(trouble("seed = [1, 2]\n").starts_with(":1: "));
    const SettingsHome home("");
    CHECK(home.hyb({"run", "hi there", "--config", "/nosuch.toml"}).exit_code == 3);
    CHECK(home.hyb({"run", "hi there"}, "", {{"HYB_CONFIG", "/nosuch.toml"}}).exit_code == 3);
    CHECK(home.hyb({"run", "hi there"}).exit_code == 0);
  }

  TEST_CASE("doctor names what settings are for and is not here") {
    const SettingsHome home("model = \"/nosuch\"\n[granite*]\ntop_k = 1\n[d?mo]\nseed = 1\n");
    const ToolResult doctor = home.hyb({"doctor"});
    CHECK(doctor.exit_code == 0);
    CHECK(contains(doctor.out, "; model = /nosuch: "));
    CHECK(!contains(doctor.out, "[d?mo] is for none"));
    CHECK(contains(SettingsHome("[zzz*]\nseed = 1\n").hyb({"doctor"}).out,
                   "; [zzz*] is for none of the models that hyb finds by name"));
    const SettingsHome empty("# nothing\n");
    CHECK(contains(empty.hyb({"doctor"}).out, empty.file + " (without settings)"));
  }

  TEST_CASE("doctor shows the file and its values") {
    const SettingsHome home("think = false\n[a b]\nstop = [\"x\", \"y\"]\n");
    const std::string doctor = home.hyb({"doctor"}).out;
    CHECK(contains(doctor, home.file + ": think = false; [a b] stop = x, y; [a b] is for none"));
    const Json settings = parse_json(home.hyb({"doctor", "--json"}).out, "out")["settings"];
    CHECK(settings["file"] == home.file);
    CHECK(settings["values"][1]["section"] == "a b");
    CHECK(settings["values"][1]["line"] == 3);
    CHECK(contains(home.hyb({"doctor"}, "", {{"XDG_CONFIG_HOME", "/nosuch"}}).out,
                   "/nosuch/hyb/config.toml (not there)\n"));
  }
}

}  // namespace surface_settings_test
