#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/io/gguf.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer_json.h"

namespace hyb {

/// The tokenizer of a GGUF file (keys tokenizer.ggml.*) as a tokenizer.json would say it:
///
///   gpt2    byte-level BPE; tokenizer.ggml.pre names how text is cut into words
///   llama   SentencePiece's BPE: every way to cut a token into two becomes a merge, ordered by
///           score as transformers' converter orders them (convert_slow_tokenizer)
///   gemma4  BPE over characters with byte fallback
///
/// Tokens of type control are special and in no merge; those of type user-defined are added tokens,
/// too, but for runs of white space, which merges make. What ends an answer by its spelling is
/// taken as control where it is of another type than these two, with a warning. Throws
/// Error(model) that names file and key for other kinds, an unknown tokenizer.ggml.pre, lists of
/// unlike lengths, ids out of range.
TokenizerFile tokenizer_of(const GgufMetadata& keys);

/// The token that a file has for "bos", "eos" or "unknown" where no key names one: llama.cpp's
/// defaults, where the token is a special one by its type.
std::optional<TokenId> gguf_default_token(const GgufMetadata& keys, std::string_view name);

/// The tokens that end an answer: those that the keys name for it, and those of well-known
/// spellings, as llama.cpp has them (llama-vocab.cpp, special_eog_ids); sorted.
std::vector<TokenId> end_tokens_of(const GgufMetadata& keys);

/// The chat templates, as find_chat_templates() has those of a folder: tokenizer.chat_template is
/// "default", tokenizer.chat_template.NAME is NAME.
std::vector<NamedTemplate> gguf_chat_templates(const GgufMetadata& keys);

}  // namespace hyb
