#include "core/io/gguf_stores.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/gguf_bytes.h"

namespace gguf_stores_test {

using namespace hyb;
using namespace hyb::testing;
namespace fs = std::filesystem;

namespace {

const std::string commit = "0123456789abcdef0123456789abcdef01234567";
const std::string digest(64, 'a'), other_digest(64, 'b');

std::string gguf(const char* type = "model") {
  return GgufBytes()
      .begin(0, 2)
      .key("general.architecture", "llama")
      .key("general.type", type)
      .bytes();
}

std::string layer(const std::string& kind, const std::string& hash) {
  return fmt::format(R"({{"mediaType":"application/vnd.ollama.image.{}","digest":"{}","size":1}})",
                     kind, hash);
}

std::string manifest(const std::string& layers) {
  return R"({"schemaVersion":2,"layers":[)" + layers + "]}";
}

/// A home with all stores where they are by default.
struct Stores {
  fs::path hub(const std::string& repository, const std::string& file) const {
    const fs::path model = ".cache/huggingface/hub/models--" + repository;
    home.write(model / "refs/main", commit);
    return home.write(model / "snapshots" / commit / file, gguf());
  }
  fs::path ollama(const std::string& name, const std::string& layers) const {
    home.write(".ollama/models/manifests/" + name, manifest(layers));
    return home.path() / ".ollama/models/blobs" / ("sha256-" + digest);
  }

  fs::path find(const std::string& name) const {
    const auto stored = find_gguf(name, environment);
    REQUIRE(stored.has_value());
    CHECK(stored->name == name);
    return stored->file;
  }
  bool has(const std::string& name) const { return find_gguf(name, environment).has_value(); }
  std::string error(const std::string& name) const {
    return model_error([&] { find_gguf(name, environment); });
  }

  TemporaryFolder home;
  HubEnvironment environment = {.home = home.path().string()};
};

}  // namespace

TEST_SUITE("core/io/gguf_stores") {
  TEST_CASE("a file is taken by its name or its first bytes, a folder by its only model") {
    const Stores stores;
    const auto file = stores.home.write("a/model.Q4_1.GGUF", "?");
    CHECK(stores.find(file.string()) == file);
    const auto blob = stores.home.write("sha256-1", gguf());
    CHECK(stores.find(blob.string()) == blob);
    CHECK_FALSE(stores.has(stores.home.write("b/config.json", "{}").string()));
    CHECK_FALSE(stores.has((stores.home.path() / "b").string()));

    const std::string folder = (stores.home.path() / "a").string();
    CHECK(stores.find(folder) == file);
    stores.home.write("a/mmproj-model-F16.gguf", gguf("mmproj"));
    stores.home.write("a/imatrix_unsloth.gguf", gguf("imatrix"));
    stores.home.write("a/config.json", "{}");  // of another model, as some repositories have it
    CHECK(stores.find(folder) == file);
    const auto vision = stores.home.write("a/eyes.gguf", gguf("mmproj"));  // by what it says
    CHECK(stores.find(folder) == file);
    CHECK(stores.find(vision.string()) == vision);  // named: a reader says what it is
    stores.home.write("a/model.Q8_0.gguf", gguf());
    CHECK(contains(stores.error(folder), "2 files fit, name one of them: "));
    CHECK(contains(stores.error(folder), "model.Q4_1.GGUF, "));
    stores.home.write("a/model.safetensors", "");
    CHECK_FALSE(stores.has(folder));
  }

  TEST_CASE("a split file is one model, in a folder of its own as well") {
    const Stores stores;
    const auto first = stores.home.write("m/Q4/x-00001-of-00002.gguf", gguf());
    const auto second = stores.home.write("m/Q4/x-00002-of-00002.gguf", gguf());
    stores.home.write("m/.cache/y.gguf", gguf());
    CHECK(stores.find((stores.home.path() / "m").string()) == first);
    CHECK(stores.find(second.string()) == second);  // GgufFiles knows all parts by any of them
  }

  TEST_CASE("of a repository in the Hugging Face cache the tag names the file") {
    const Stores stores;
    const auto one = stores.hub("org--x-GGUF", "x-IQ4_XS.gguf");
    CHECK(stores.find("org/x-GGUF") == one);
    const auto q4 = stores.hub("org--x-GGUF", "x-Q4_K_M.gguf");
    const auto split = stores.hub("org--x-GGUF", "BF16/x-BF16-00001-of-00002.gguf");
    stores.hub("org--x-GGUF", "BF16/x-BF16-00002-of-00002.gguf");
    stores.hub("org--x-GGUF", "mmproj-Q8_0.gguf");
    CHECK(stores.find("org/x-GGUF") == q4);
    CHECK(stores.find("org/x-GGUF@main:iq4_xs") == one);
    CHECK(stores.find("org/x-GGUF@0123456:BF16") == split);
    CHECK(stores.find("hf.co/org/x-GGUF:Q4_K_M") == q4);
    CHECK(stores.find("org/x-GGUF:x-Q4_K_M.gguf") == q4);
    CHECK(contains(stores.error("org/x-GGUF:Q4_K"),
                   "no file of it is \"Q4_K\"; there are BF16, IQ4_XS, Q4_K_M"));
    stores.hub("org--x-GGUF", "x-UD-Q4_K_M.gguf");
    CHECK(contains(stores.error("org/x-GGUF"), "2 files fit"));
    CHECK(contains(stores.error("org/x-GGUF:Q4_K_M"), "2 files fit"));
    CHECK(contains(stores.error("org/x-GGUF@v9:Q4_K_M"), "revision \"v9\" is not in"));
    stores.hub("org--y", "model.safetensors");
    stores.hub("org--y", "y-Q8_0.gguf");
    stores.home.write(".lmstudio/models/org/y/y-Q2_K.gguf", gguf());
    stores.home.write(".lmstudio/models/org/y/y-Q4_0.gguf", gguf());
    CHECK_FALSE(stores.has("org/y"));  // the folder is the first door, whatever other stores have
    CHECK_FALSE(stores.has("hf.co/org/y"));
    CHECK(stores.find("org/y:Q2_K").filename() == "y-Q2_K.gguf");
    CHECK(stores.find("org/y:Q8_0").filename() == "y-Q8_0.gguf");
    CHECK_FALSE(stores.has("org/z:Q8_0"));
    CHECK(contains(gguf_places("org/z:Q8_0", stores.environment).at(3),
                   "manifests/registry.ollama.ai/org/z/Q8_0"));
    CHECK_FALSE(stores.has("org/z"));
  }

  TEST_CASE("a tag is a whole word, best the last of the name") {
    const Stores stores;
    const auto bf16 = stores.hub("org--x", "x-BF16.gguf");
    const auto f16 = stores.hub("org--x", "x-F16.gguf");
    const auto other = stores.hub("org--x", "x-F16.Q8_0.gguf");
    stores.hub("org--x", "x-TQ1_0.gguf");
    CHECK(stores.find("org/x:F16") == f16);
    CHECK(stores.find("org/x:f16.q8_0") == other);
    CHECK(stores.find("org/x:BF16") == bf16);
    CHECK(contains(stores.error("org/x:Q1_0"), "no file of it is \"Q1_0\"; there are "));
    const auto joined = stores.hub("org--y", "y_Q8_0.gguf");
    CHECK(stores.find("org/y:Q8_0") == joined);
    stores.hub("org--y", "y-UD-Q4_K_XL.gguf");
    stores.hub("org--y", "y-Q4_K_XL.gguf");
    CHECK(contains(stores.error("org/y:Q4_K_XL"), "2 files fit"));
    CHECK(
        contains(stores.error("org/y:Q9"), "there are y-Q4_K_XL.gguf, y-UD-Q4_K_XL.gguf, y_Q8_0"));
  }

  TEST_CASE("LM Studio's and llama.cpp's folders") {
    Stores stores;
    const auto lm = stores.home.write(".lmstudio/models/pub/repo/r-Q8_0.gguf", gguf());
    const auto old = stores.home.write(".cache/lm-studio/models/pub/old/o.gguf", gguf());
    const auto flat = stores.home.write(".cache/llama.cpp/org_name_n-Q4_K_M.gguf", gguf());
    stores.home.write(".cache/llama.cpp/org_name_n-Q4_K_M.gguf.json", "{}");
    CHECK(stores.find("pub/repo") == lm);
    CHECK(stores.find("pub/repo:q8_0") == lm);
    CHECK(stores.find("r-Q8_0.gguf") == lm);
    CHECK(stores.find("pub/old") == old);
    CHECK(stores.find("org/name") == flat);
    CHECK(stores.find("org/name:Q4_K_M") == flat);
    CHECK(stores.find("org_name_n-Q4_K_M.gguf") == flat);
    CHECK_FALSE(stores.has("org"));
    const TemporaryFolder cache;
    const auto own = cache.write("a_b_c.gguf", gguf());
    stores.environment.llama_cache = cache.path().string();
    CHECK(stores.find("a/b") == own);
    CHECK_FALSE(stores.has("org/name"));
  }

  TEST_CASE("ollama's names") {
    Stores stores;
    const auto blob = stores.ollama("registry.ollama.ai/library/gemma3/270m",
                                    layer("model", "sha256:" + digest) + "," +
                                        layer("system", "sha256:" + other_digest) + "," +
                                        layer("params", "sha256:" + other_digest));
    CHECK(contains(stores.error("gemma3:270m"), "the file that it names is not there: "));
    stores.home.write(".ollama/models/blobs/sha256-" + digest, gguf());
    CHECK(stores.find("gemma3:270m") == blob);
    CHECK(find_gguf("gemma3:270m", stores.environment)->note ==
          "what ollama keeps beside it is not used: system, params");
    CHECK(stores.find("library/gemma3:270m") == blob);
    CHECK(stores.find("registry.ollama.ai/library/gemma3:270m") == blob);
    CHECK_FALSE(stores.has("gemma3"));  // there is no latest
    stores.ollama("registry.ollama.ai/library/gemma3/latest", layer("model", "sha256:" + digest));
    CHECK(stores.find("gemma3") == blob);
    stores.ollama("hf.co/org/x-GGUF/Q4_K_M", layer("model", "sha256:" + digest));
    const auto hub = stores.hub("org--x-GGUF", "x-Q4_K_M.gguf");
    CHECK(stores.find("hf.co/org/x-GGUF:Q4_K_M") == blob);
    CHECK(stores.find("org/x-GGUF:Q4_K_M") == hub);
    CHECK_FALSE(stores.has("gemma3:1b"));
    const TemporaryFolder elsewhere;
    stores.environment.ollama_models = elsewhere.path().string();
    CHECK_FALSE(stores.has("gemma3:270m"));
    CHECK(contains(gguf_places("gemma3:270m", stores.environment).back(),
                   (elsewhere.path() / "manifests/registry.ollama.ai/library/gemma3").string()));
  }

  TEST_CASE("manifests of ollama that are wrong, or of another kind, are refused by name") {
    const Stores stores;
    const std::string good = "sha256:" + digest;
    const auto refusal = [&](const std::string& layers) {
      stores.ollama("registry.ollama.ai/library/m/latest", layers);
      return stores.error("m:latest");
    };
    for (const std::string& bad :
         {std::string("sha256:../../../etc/passwd"), "sha256:" + std::string(63, 'a'),
          "sha256:" + std::string(64, 'A'), "md5:" + digest, std::string()}) {
      CHECK(contains(refusal(layer("model", bad)), "a digest must be sha256: and 64 digits, is"));
    }
    CHECK(contains(refusal(layer("model", good) + "," + layer("adapter", good)), "an adapter"));
    CHECK(contains(refusal(layer("tensor", good)), "no GGUF file but for MLX"));
    CHECK(contains(refusal(layer("model", good) + "," + layer("model", good)), "several files"));
    CHECK(contains(refusal(layer("license", good)), "it names no GGUF file"));
    CHECK(contains(refusal("7"), "it names no GGUF file"));
    stores.home.write(".ollama/models/manifests/registry.ollama.ai/library/m/latest", "{}");
    CHECK(contains(stores.error("m:latest"), "it has no list of layers"));
    stores.home.write(".ollama/models/manifests/registry.ollama.ai/library/m/latest", "[");
    CHECK(contains(stores.error("m:latest"), "library/m/latest: "));
    stores.home.write(".ollama/models/evil", manifest(layer("model", good)));
    CHECK_FALSE(stores.has("m:../../../../evil"));
    for (const std::string name : {"../../../evil:x", "a/../m:x", "m:.", ":x", "a/b/c/d:x"}) {
      CAPTURE(name);
      CHECK_FALSE(stores.has(name));
    }
  }

  TEST_CASE("a path that exists is never a name") {
    const Stores stores;
    stores.ollama("registry.ollama.ai/library/gemma3/270m", layer("model", "sha256:" + digest));
    const auto file = stores.home.write("gemma3:270m", gguf());
    const fs::path before = fs::current_path();
    fs::current_path(stores.home.path());
    const auto stored = find_gguf("gemma3:270m", stores.environment);
    fs::current_path(before);
    REQUIRE(stored.has_value());
    CHECK(stored->file == "gemma3:270m");
  }

  TEST_CASE("every model of the stores is found by the name that is listed") {
    const Stores stores;
    stores.hub("org--x-GGUF", "x-Q4_K_M.gguf");
    stores.hub("org--x-GGUF", "x-Q8_0.gguf");
    stores.hub("org--y", "y.Q8_0.gguf");
    stores.hub("org--z", "model.safetensors");
    stores.hub("org--twice", "t-UD-Q4_K_XL.gguf");
    stores.hub("org--twice", "t-Q4_K_XL.gguf");
    stores.home.write(".lmstudio/models/org/z/z-Q8_0.gguf", gguf());  // org/z is safetensors
    const auto shadowed = stores.home.write(".lmstudio/models/org/y/y.Q8_0.gguf", gguf());
    stores.home.write(".lmstudio/models/pub/repo/r-Q8_0.gguf", gguf());
    stores.home.write(".cache/llama.cpp/org_name_n-Q4_K_M.gguf", gguf());
    for (const char* stray : {"library/gemma3/.DS_Store", "library/-m/latest", "library/m/a:b"}) {
      stores.ollama("registry.ollama.ai/" + std::string(stray), layer("model", digest));
    }
    stores.home.write(".ollama/models/blobs/sha256-" + digest, gguf());
    for (const char* name : {"registry.ollama.ai/library/gemma3/270m",
                             "registry.ollama.ai/me/mine/latest", "hf.co/org/w/Q4_0"}) {
      stores.ollama(name, layer("model", "sha256:" + digest));
    }
    stores.ollama("registry.ollama.ai/library/broken/latest", "");
    std::vector<std::string> names;
    for (const StoredGguf& stored : stored_ggufs(stores.environment)) {
      names.push_back(stored.name);
      CAPTURE(stored.name);
      if (stored.trouble.empty()) {
        CHECK(stores.find(stored.name) == stored.file);
        CHECK(stored.hub_name == (stored.file.string().find("/hub/") == std::string::npos
                                      ? ""
                                      : stored.name.substr(0, stored.name.find(':'))));
      } else {
        CHECK(stored.name == "broken:latest");
      }
    }
    CHECK(names == std::vector<std::string>{
                       "org/twice:t-Q4_K_XL.gguf", "org/twice:t-UD-Q4_K_XL.gguf",
                       "org/x-GGUF:Q4_K_M", "org/x-GGUF:Q8_0", "org/y", shadowed.string(),
                       "org/z:Q8_0", "pub/repo", "org_name_n-Q4_K_M.gguf", "hf.co/org/w:Q4_0",
                       "broken:latest", "gemma3:270m", "me/mine:latest"});
    CHECK(stored_ggufs({}).empty());
  }
}

}  // namespace gguf_stores_test
