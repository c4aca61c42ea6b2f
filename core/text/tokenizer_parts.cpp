#include "core/text/tokenizer_parts.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace hyb {
namespace {

constexpr std::size_t tokens_max = 1024;

TokenId read_token(const Json& json, const std::string& where,
                   const PostProcessor::Exists& exists) {
  const bool fits = json.is_number_integer() && json >= 0 && json <= INT32_MAX;
  const TokenId token{fits ? json.get<std::int32_t>() : -1};
  if (!fits || !exists(token)) {
    JsonFields(Json::object(), where).fail("no token has the id " + to_text(json));
  }
  return token;
}

}  // namespace

PostProcessor::PostProcessor(const Json& json, const std::string& where, const Exists& exists) {
  read(json, where, exists, 0);
}

void PostProcessor::read(const Json& json, const std::string& where, const Exists& exists,
                         int depth) {
  if (json.is_null()) return;
  const JsonFields fields(json, where);
  const std::string type = fields.step_type(
      depth, "processors",
      [&](const Json& step, const auto& at) { read(step, at, exists, depth + 1); });
  if (type == "Sequence") return;
  if (type == "TemplateProcessing") {
    read_template(json, where, exists);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    read_pair(json, where, exists);
  } else if (type != "ByteLevel") {  // which only adjusts offsets
    fields.fail("the post-processor \"" + type + "\" is not supported");
  }
  if (before_.size() + after_.size() > tokens_max) {
    fields.fail("adds more than " + std::to_string(tokens_max) + " tokens");
  }
}

void PostProcessor::read_template(const Json& json, const std::string& where,
                                  const Exists& exists) {
  const JsonFields fields(json, where);
  const JsonFields special(fields.at("special_tokens"), where + ".special_tokens");
  bool text_seen = false;
  std::vector<TokenId> before;
  std::vector<TokenId> after;
  for (const Json& piece : fields.array("single")) {
    const JsonFields part(piece, where + ".single");
    if (!part.at("Sequence").is_null()) {
      const JsonFields sequence(part.at("Sequence"), where + ".single.Sequence");
      if (sequence.text("id") != "A" || text_seen) part.fail("the text A must occur exactly once");
      text_seen = true;
      continue;
    }
    const JsonFields token(part.at("SpecialToken"), where + ".single.SpecialToken");
    const std::string name = token.text("id");
    if (special.at(name).is_null()) part.fail("\"" + name + "\" is not in special_tokens");
    const JsonFields entry(special.at(name), special.where() + "." + name);
    for (const Json& id : entry.array("ids")) {
      (text_seen ? after : before).push_back(read_token(id, entry.where(), exists));
    }
  }
  if (!text_seen) fields.fail("the text A must occur exactly once");
  before_.insert(before_.begin(), before.begin(), before.end());
  after_.insert(after_.end(), after.begin(), after.end());
}

void PostProcessor::read_pair(const Json& json, const std::string& where, const Exists& exists) {
  const JsonFields fields(json, where);
  const auto token = [&](const char* key) {
    const Json& pair = fields.array(key);
    if (pair.size() != 2) fields.fail(std::string(key) + " must be [text, id]");
    return read_token(pair[1], where + "." + key, exists);
  };
  before_.insert(before_.begin(), token("cls"));
  after_.push_back(token("sep"));
}

void PostProcessor::apply(std::vector<TokenId>& tokens) const {
  tokens.insert(tokens.begin(), before_.begin(), before_.end());
  tokens.insert(tokens.end(), after_.begin(), after_.end());
}

namespace {

const Json& field(const TokenizerFile& file, const char* key) {
  const auto found = file.rest.find(key);
  return found == file.rest.end() ? null_json : *found;
}

/// Returns the file if its model is BPE, the only supported kind.
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
              GrowthLimit growth = normalizer.growth_limit(spelling.size());
              return normalizer.apply({std::string(spelling), {}, Guard::open}, growth).text;
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
