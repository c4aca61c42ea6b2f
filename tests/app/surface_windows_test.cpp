// Models whose layers see a window, and layers that read another's keys: whatever is kept, shared,
// cut, moved or loaded, the answers are the same bytes.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/app/random_model.h"

namespace surface_windows_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

const std::vector<std::string> models = {
    "cohere2",       "gpt-oss",         "gemma2", "gemma3n", "gemma4-moe",
    "gemma4-shared", "granite-swa-moe", "lfm3",   "llama4",  "mellum"};

}  // namespace

TEST_SUITE("app/surface_windows") {
  TEST_CASE("a batch's answers: prefixes, company, pages, drafts and scarce memory show nowhere") {
    for (const std::string& name : models) {
      CAPTURE(name);
      const RandomModel model(name);
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
        const auto answers = answer_mixed(model, options).answers;
        if (plain.empty()) plain = answers;
        CHECK(answers == plain);
      }
      CHECK(plain.size() == 24);
    }
  }

  TEST_CASE("a chat's answers: undo, regen and a session that is loaded go on from what is kept") {
    for (const std::string& name : models) check_chat(name, {});
  }
}

}  // namespace surface_windows_test
