#include "core/io/model_folder.h"

#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace model_folder_test {

using namespace hyb;
using namespace hyb::testing;
namespace fs = std::filesystem;

namespace {

const std::string commit_a = "0123456789abcdef0123456789abcdef01234567";
const std::string commit_b = "0123456799abcdef0123456789abcdef01234567";

/// A hub folder as huggingface_hub leaves it, with one model in two revisions.
struct Hub {
  TemporaryFolder folder;
  fs::path model = folder.path() / "models--org--name";
  HubEnvironment environment = {.hf_hub_cache = folder.path().string()};

  Hub() {
    folder.write("models--org--name/blobs/b1", "{}");
    folder.write("models--org--name/refs/main", commit_a);
    folder.write("models--org--name/refs/v2", commit_b + "\n");
    folder.write("models--org--name/refs/refs/pr/1", commit_b);
    for (const std::string& commit : {commit_a, commit_b}) {
      fs::create_directories(model / "snapshots" / commit);
      fs::create_symlink("../../blobs/b1", model / "snapshots" / commit / "config.json");
    }
  }

  fs::path find(const std::string& name) const { return find_model_folder(name, environment); }
  std::string error(const std::string& name) const {
    return model_error([&] { find(name); });
  }
};

}  // namespace

TEST_SUITE("core/io/model_folder") {
  TEST_CASE("the cache is where huggingface_hub would look") {
    HubEnvironment e = {.home = "/home/u"};
    CHECK(hub_folder(e) == "/home/u/.cache/huggingface/hub");
    e.xdg_cache_home = "/xdg";
    CHECK(hub_folder(e) == "/xdg/huggingface/hub");
    e.hf_home = "~/hf";
    CHECK(hub_folder(e) == "/home/u/hf/hub");
    e.hf_hub_cache = "/cache";
    CHECK(hub_folder(e) == "/cache");
    e.hf_hub_cache = "";
    CHECK(hub_folder(e) == "/home/u/hf/hub");
    CHECK(hub_folder({}).empty());
  }

  TEST_CASE("a folder is taken as it is") {
    const TemporaryFolder folder;
    CHECK(contains(model_error([&] { find_model_folder(folder.path().string(), {}); }),
                   "config.json: can't be opened"));
    folder.write("config.json", "{}");
    CHECK(find_model_folder(folder.path().string(), {}) == folder.path());
    CHECK(contains(
        model_error([&] { find_model_folder((folder.path() / "config.json").string(), {}); }),
        "is a file"));
  }

  TEST_CASE("names are resolved by branch, tag, commit and commit prefix") {
    const Hub hub;
    CHECK(hub.find("org/name") == hub.model / "snapshots" / commit_a);
    CHECK(hub.find("hf.co/org/name") == hub.model / "snapshots" / commit_a);
    CHECK(hub.find("org/name@main") == hub.model / "snapshots" / commit_a);
    CHECK(hub.find("org/name@v2") == hub.model / "snapshots" / commit_b);
    CHECK(hub.find("org/name@refs/pr/1") == hub.model / "snapshots" / commit_b);
    CHECK(hub.find("org/name@" + commit_b) == hub.model / "snapshots" / commit_b);
    CHECK(hub.find("org/name@012345679") == hub.model / "snapshots" / commit_b);
  }

  TEST_CASE("an error says what there is instead") {
    const Hub hub;
    CHECK(contains(hub.error("org/other"), "\"org/other\": not found"));
    CHECK(contains(hub.error("org/name@v3"), "the branches main, refs, v2 and the commits 0123"));
    CHECK(contains(hub.error("org/name@0123456"), "2 commits begin with 0123456"));
    CHECK(contains(hub.error("org/name@01234"), "revision \"01234\" is not"));
    CHECK(contains(hub.error("org/name@fffffffff"), "is not in the Hugging Face cache"));
    CHECK(contains(model_error([] { find_model_folder("org/name", {}); }), "HF_HUB_CACHE"));
    CHECK(contains(hub.error("/tmp/nowhere/x.gguf"), "no such file or folder"));
    const auto beside = hub.folder.write("b/x-imatrix.gguf", "GGUF");
    CHECK(contains(hub.error(beside.parent_path().string()),
                   "has no config.json; \"x-imatrix.gguf\" is passed over"));
  }

  TEST_CASE("a reference to an absent snapshot and a link to an absent blob are named") {
    const Hub hub;
    fs::remove_all(hub.model / "snapshots" / commit_a);
    CHECK(contains(hub.error("org/name"), "names the commit " + commit_a));
    fs::remove(hub.model / "blobs/b1");
    CHECK(contains(hub.error("org/name@v2"), (hub.model / "blobs/b1").string()));
  }

  TEST_CASE("no name escapes the cache") {
    const Hub hub;
    hub.folder.write("models--org--evil/refs/main", "../../models--org--name/snapshots");
    CHECK(contains(hub.error("org/evil"), "should hold a commit"));
    CHECK(contains(hub.error("org/name@../refs/main"), "can't be a revision"));
    CHECK(contains(hub.error("org/name@/etc"), "can't be a revision"));
    CHECK(contains(hub.error("org/name@"), "can't be a revision"));
    CHECK(contains(hub.error("../name"), "no such file or folder"));
    CHECK(contains(hub.error("a/b/c"), "no such file or folder"));
    CHECK(contains(hub.error("/nowhere/at/all"), "no such file or folder"));
    CHECK(contains(hub.error(""), "empty"));
    CHECK(contains(hub.error(std::string("a\0b", 3)), "NUL"));
  }
}

}  // namespace model_folder_test
