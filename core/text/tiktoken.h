#pragma once

#include <string_view>

#include "core/text/tokenizer_json.h"

namespace hyb {

/// Pattern of the words of Kimi's tokenizer, from the class that the model is published with.
inline constexpr std::string_view kimi_words =
    R"([\p{Han}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Kimi's tokenizer as a tokenizer.json would say it: `text` is a tiktoken.model, a line "BASE64
/// RANK" for each token, whose rank is its id and says when it is merged, however it is cut into
/// two; the 256 ids after them are special tokens, spelled as added_tokens_decoder of
/// tokenizer_config.json says, or <|reserved_token_ID|>. How text is cut into words follows from
/// its tokenizer_class, which must be TikTokenTokenizer. Throws Error(model) that begins with the
/// file's name for what is damaged or of another kind.
TokenizerFile read_tiktoken(std::string_view text, std::string_view source,
                            std::string_view tokenizer_config_json, std::string_view config_source);

}  // namespace hyb
