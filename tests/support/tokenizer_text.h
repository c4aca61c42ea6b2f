#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "core/base/error.h"

namespace hyb::testing {

inline std::string read_test_file(const std::string& name) {
  const std::string path = std::string(HYB_TESTS_DIR) + "/" + name;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorKind::runtime, path + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The pieces of a tokenizer.json, as JSON texts.
struct TokenizerText {
  std::string vocab = R"({"a":0,"b":1,"c":2,"ab":3,"abc":4,"<unk>":5," ":6})";
  std::string merges = R"(["a b","ab c"])";
  std::string model = R"("type":"BPE")";  // further fields of the model
  std::string added = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string post_processor = "null";
  std::string decoder = "null";

  std::string text() const {
    return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)" + added +
           R"(,"normalizer":)" + normalizer + R"(,"pre_tokenizer":)" + pre_tokenizer +
           R"(,"post_processor":)" + post_processor + R"(,"decoder":)" + decoder + R"(,"model":{)" +
           model + R"(,"vocab":)" + vocab + R"(,"merges":)" + merges + "}}";
  }
};

}  // namespace hyb::testing
