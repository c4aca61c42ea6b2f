#include "app/doctor/checkup.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/io/file.h"
#include "tests/support/files.h"
#include "tests/support/tiny_gguf.h"

namespace checkup_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

TEST_SUITE("app/doctor/checkup") {
  TEST_CASE("the chosen one of the kernel's choices") {
    CHECK(chosen_of("always [madvise] never") == "madvise");
    CHECK(chosen_of("[always] madvise never") == "always");
    CHECK(chosen_of("") == "");
    CHECK(chosen_of("always [madvise") == "");
    CHECK(chosen_of("] x [") == "");
  }

  TEST_CASE("models of the cache, with what can be done with each") {
    const TemporaryFolder hub;
    const auto add = [&](const std::string& folder, const std::string& config) {
      hub.write(folder + "/refs/main", "0123456789012345678901234567890123456789");
      hub.write(folder + "/snapshots/0123456789012345678901234567890123456789/config.json", config);
    };
    const auto preset = [](const std::string& name) {
      return read_whole_file(std::filesystem::path(HYB_TESTS_DIR).parent_path() / "models/presets" /
                                 name / "config.json",
                             1U << 20);
    };
    add("models--ibm--granite", preset("granite-4.0-h-tiny"));
    add("models--nvidia--nemotron", preset("nemotron-nano-12b-v2"));
    add("models--openai-community--gpt2", R"({"model_type":"gpt2"})");
    add("models--broken--one", "{");
    hub.write("models--empty--one/refs/main", "");
    hub.write("datasets--some--data/x", "");
    hub.write("models--org--tiny-GGUF/refs/main", "0123456789012345678901234567890123456789");
    hub.write("models--org--tiny-GGUF/snapshots/0123456789012345678901234567890123456789/t.gguf",
              tiny_gguf(1));
    const auto models = hub_models(hub.path(), {.hf_hub_cache = hub.path().string()});
    REQUIRE(models.size() == 6);
    CHECK(models[0].name == "broken/one");
    CHECK(models[1].name == "empty/one");
    CHECK(!models[1].runs);
    CHECK(models[2].name == "ibm/granite");
    CHECK(models[2].runs);
    CHECK(models[3].status == "runs");
    CHECK(models[4].status.find("gpt2") != std::string::npos);
    CHECK(models[5].runs);
  }

  TEST_CASE("no folder is no models") {
    CHECK(hub_models("/nowhere", {}).empty());
    CHECK(hub_models({}, {}).empty());
  }

  TEST_CASE("shared memory without huge pages where others have them is reported, with a remedy") {
    const auto with = [](const std::string& pages, const std::string& shared) {
      Checkup checkup;
      checkup.huge_pages = pages;
      checkup.shared_huge_pages = shared;
      return checkup;
    };
    for (const std::string shared : {"never", "deny", ""}) {
      for (const std::string pages : {"always", "madvise"}) {
        CHECK(flip_is_slow(with(pages, shared)));
        CHECK(checkup_text(with(pages, shared)).find("echo advise > /sys") != std::string::npos);
      }
      CHECK_FALSE(flip_is_slow(with("never", shared)));
    }
    for (const std::string shared : {"always", "within_size", "advise", "force"}) {
      CHECK_FALSE(flip_is_slow(with("madvise", shared)));
      CHECK(checkup_text(with("madvise", shared)).find("echo advise") == std::string::npos);
    }
    CHECK(checkup_text({}).find("remap, the default") != std::string::npos);
  }

  TEST_CASE("this machine has threads and memory, and says so in both forms") {
    const Checkup checkup = examine({});
    CHECK(checkup.threads >= 1);
    CHECK(checkup.memory > 0);
    CHECK(checkup.memory_available <= checkup.memory);
    CHECK(checkup_json(checkup)["threads"] == checkup.threads);
    CHECK(checkup_text(checkup).find("hugging face") != std::string::npos);
  }
}

}  // namespace checkup_test
