#include "tests/sim/toy_text.h"

namespace hyb::sim {

const Tokenizer& toy_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::from_json(R"({
    "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
    "post_processor": null,
    "added_tokens": [{"id": 10, "content": "<end>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                      "use_regex": false},
    "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                "use_regex": false},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
              "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "ba": 4, "Ã": 5, "©": 6, "â": 7, "Ĥ": 8,
                        "¬": 9, "<end>": 10, "aab": 11, "cab": 12, "bb": 13, "aa": 14, "bca": 15},
              "merges": []}
  })",
                                                          "toy tokenizer");
  return tokenizer;
}

PlainText cut_at_stop(std::string text, std::span<const std::string> stop) {
  std::size_t end = std::string::npos, begin = 0;
  for (const std::string& string : stop) {
    const std::size_t at = text.find(string);
    if (at == std::string::npos) continue;
    const std::size_t after = at + string.size();
    if (after < end || (after == end && at < begin)) {
      end = after;
      begin = at;
    }
  }
  if (end == std::string::npos) return {std::move(text), false};
  text.resize(begin);
  return {std::move(text), true};
}

}  // namespace hyb::sim
