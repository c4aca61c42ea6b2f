#include "models/gguf.h"

#include <string>

#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/gguf_bytes.h"

namespace gguf_model_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

/// What is said of a file of this architecture and kind with one tensor, or none.
std::string refusal(const std::string& architecture, const std::string& type,
                    const std::string& tensor) {
  GgufBytes file;
  file.begin(tensor.empty() ? 0 : 1, 2)
      .key("general.architecture", architecture)
      .key("general.type", type);
  if (!tensor.empty()) file.tensor(tensor, {4}, 0, 0).pad().raw(std::string(16, 'x'));
  const TemporaryFolder folder;
  const auto path = folder.write("x.gguf", file.bytes());
  return model_error([&] { models::gguf_config(GgufFiles(path)); });
}

}  // namespace

TEST_SUITE("models/gguf") {
  TEST_CASE("files that are no language model are refused by name, with what to do") {
    const std::string layer = "blk.0.attn_q.weight";
    CHECK(contains(refusal("clip", "mmproj", "v.blk.0.a"), "the vision or sound part of a model"));
    CHECK(contains(refusal("clip", "model", "v.blk.0.a"), "give the file of the text model"));
    CHECK(contains(refusal("llama", "adapter", layer), "an adapter (LoRA), which is not"));
    CHECK(contains(refusal("llama", "imatrix", layer), "an importance matrix"));
    CHECK(contains(refusal("llama", "model", ""), "a vocabulary and no weights"));
    for (const char* drafts : {"eagle3", "dflash", "gemma4-assistant"}) {
      CHECK(contains(refusal(drafts, "model", layer), "it only drafts for another model"));
    }
    CHECK(contains(refusal("qwen35", "model", "blk.24.nextn.eh_proj.weight"), "--spec ngram"));
    CHECK(contains(refusal("phi3", "model", layer), "architecture \"phi3\" is not read"));
  }
}

}  // namespace gguf_model_test
