#pragma once

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "core/base/error.h"
#include "core/io/gguf.h"
#include "core/text/gguf_tokenizer.h"
#include "core/text/tokenizer.h"

namespace hyb::testing {

/// Whether what a header states lies inside of the file, in order.
inline bool is_inside(const GgufHeader& header, std::string_view bytes) {
  std::uint64_t end = 0;
  for (const GgufTensor& tensor : header.tensors) {
    if (tensor.begin < end || tensor.bytes > bytes.size()) return false;
    end = tensor.begin + tensor.bytes;
    if (header.data_offset + end > bytes.size()) return false;
  }
  for (const std::string_view key : header.metadata.keys()) {
    try {
      for (const std::string_view text : header.metadata.texts(key)) {
        if (text.data() + text.size() > bytes.data() + bytes.size()) return false;
      }
    } catch (const Error&) {  // of another type
    }
  }
  return true;
}

/// A whole GGUF file, and a tokenizer and templates from it: right, or refused by an Error. False:
/// what was read can't be so.
inline bool try_gguf(std::string_view bytes) {
  try {
    const auto header = parse_gguf_header(bytes, bytes.size(), "x.gguf");
    if (!header || !is_inside(*header, bytes)) return false;
    const GgufMetadata& keys = header->metadata;
    end_tokens_of(keys);
    gguf_chat_templates(keys);
    const Tokenizer tokenizer = Tokenizer::from_gguf(keys);
    if (tokenizer.encode("a b, 7\n<0x41>", {}).size() > 64) return false;
  } catch (const Error&) {
  }
  return true;
}

}  // namespace hyb::testing
