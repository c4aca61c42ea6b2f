#include "core/text/tokenizer_parts.h"

#include "core/base/error.h"
#include "core/text/json_fields.h"

namespace hyb {
namespace {

const Json null_json;

const Json& field(const TokenizerFile& file, const char* key) {
  const auto found = file.rest.find(key);
  return found == file.rest.end() ? null_json : *found;
}

/// The file when it describes a model of the one kind we have.
const TokenizerFile& checked(const TokenizerFile& file) {
  if (!file.rest.is_object()) file.fail("an object is expected");
  const JsonFields model(field(file, "model"), file.source + ": model");
  const bool tables = model.at("vocab").is_object() && model.at("merges").is_array();
  const std::string type = model.text_or("type", tables ? "BPE" : "");
  if (type != "BPE") {
    model.fail("the type \"" + type + "\" is not supported; BPE is");
  }
  if (!tables) model.fail("a BPE model needs \"vocab\" (an object) and \"merges\" (a list)");
  if (file.vocabulary.count() == 0) model.fail("the vocabulary is empty");
  return file;
}

}  // namespace

TokenizerParts::TokenizerParts(TokenizerFile file)
    : vocabulary((checked(file), std::move(file.vocabulary))),
      bpe(file, vocabulary),
      normalizer(field(file, "normalizer"), file.source + ": normalizer"),
      pre_tokenizer(field(file, "pre_tokenizer"), file.source + ": pre_tokenizer"),
      added(file, vocabulary,
            [&](std::string_view spelling) {
              return normalizer.apply({std::string(spelling), {}, Guard::open}).text;
            }),
      post_processor(field(file, "post_processor"), file.source + ": post_processor",
                     [&](TokenId token) { return contains(token); }),
      decoder(field(file, "decoder"), file.source + ": decoder") {}

bool TokenizerParts::contains(TokenId token) const {
  return added.vocabulary().contains(token) || vocabulary.contains(token);
}

std::string_view TokenizerParts::piece(TokenId token) const {
  const Vocabulary& first = added.vocabulary();
  return first.contains(token) ? first.piece(token) : vocabulary.piece(token);
}

std::string_view TokenizerParts::decoded(TokenId token) const {
  return added.vocabulary().contains(token) ? added.text_of(token) : vocabulary.piece(token);
}

std::optional<TokenId> TokenizerParts::find(std::string_view piece) const {
  const auto token = added.vocabulary().find(piece);
  return token ? token : vocabulary.find(piece);
}

void TokenizerParts::read_names(std::string_view tokenizer_config_json, std::string_view source) {
  const Json config = parse_json(tokenizer_config_json, source, {.python_numbers = true});
  const JsonFields fields(config, std::string(source));
  const auto token = [&](const char* key) -> std::optional<TokenId> {
    const Json& name = fields.at(key);
    if (name.is_null()) return std::nullopt;
    if (name.is_object())
      return find(JsonFields(name, fields.where() + ": " + key).text("content"));
    return find(fields.text(key));
  };
  bos = token("bos_token");
  eos = token("eos_token");
  pad = token("pad_token");
}

}  // namespace hyb
