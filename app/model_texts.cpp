#include "app/model_texts.h"

#include <algorithm>

#include "core/base/error.h"

namespace hyb::app {
namespace {

void add_once(std::vector<TokenId>& tokens, TokenId token) {
  if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
}

/// eos_token_id: a number or a list of them.
void add_stop_tokens(const Json& config, std::vector<TokenId>& tokens) {
  const auto found = config.find("eos_token_id");
  if (found == config.end()) return;
  const auto add = [&](const Json& id) {
    if (!id.is_number_integer()) return;
    add_once(tokens, TokenId{id.get<std::int32_t>()});
  };
  if (found->is_array()) {
    for (const Json& id : *found) add(id);
  } else {
    add(*found);
  }
}

Json read_json(const ModelSource& source, const std::string& file) {
  const auto text = source.read(file);
  if (!text) return Json::object();
  Json json = parse_json(*text, source.path_of(file), {.python_numbers = true});
  if (!json.is_object()) {
    throw Error(ErrorKind::model, source.path_of(file) + ": the top level is not an object");
  }
  return json;
}

}  // namespace

ModelTexts read_texts(const ModelSource& source) {
  ModelTexts texts;
  texts.generation_config = read_json(source, "generation_config.json");
  add_stop_tokens(texts.generation_config, texts.stop_tokens);
  add_stop_tokens(read_json(source, "config.json"), texts.stop_tokens);
  if (const auto text = source.read("tokenizer.json")) {
    texts.tokenizer = Tokenizer::from_json(*text, source.path_of("tokenizer.json"),
                                           source.read("tokenizer_config.json").value_or(""),
                                           source.path_of("tokenizer_config.json"));
    if (const auto eos = texts.tokenizer->eos()) {
      add_once(texts.stop_tokens, *eos);
    }
  }
  if (const auto text = source.chat_template("default")) {
    texts.chat_template = ChatTemplate::parse(*text, source.path_of("chat template"));
  }
  return texts;
}

const Tokenizer& need_tokenizer(const ModelTexts& texts, const ModelSource& source) {
  if (texts.tokenizer) return *texts.tokenizer;
  throw Error(ErrorKind::model, source.path_of("tokenizer.json") +
                                    ": is missing; without it there is no text in or out");
}

const ChatTemplate& need_chat_template(const ModelTexts& texts, const ModelSource& source) {
  if (texts.chat_template) return *texts.chat_template;
  throw Error(ErrorKind::model, source.path_of("chat_template.jinja") +
                                    ": is missing, and tokenizer_config.json has no chat_template; "
                                    "hyb run --raw continues plain text without one");
}

}  // namespace hyb::app
