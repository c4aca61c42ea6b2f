#include "app/model_texts.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/log.h"

namespace hyb::app {
namespace {

void add_once(std::vector<TokenId>& tokens, TokenId token) {
  if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
}

/// eos_token_id: a number or a list of them. Some files say -1 for none.
void add_stop_tokens(const Json& config, const std::string& path, std::int32_t vocab,
                     std::vector<TokenId>& tokens) {
  const auto found = config.find("eos_token_id");
  if (found == config.end() || found->is_null()) return;
  const auto add = [&](const Json& id) {
    if (!id.is_number_integer()) {
      throw Error(ErrorKind::model,
                  fmt::format("{}: eos_token_id must be a whole number or a list of them, is {}",
                              path, to_text(*found).substr(0, 60)));
    }
    const auto number = id.get<std::int64_t>();
    if (number >= 0 && number < vocab) {
      add_once(tokens, TokenId{static_cast<std::int32_t>(number)});
    } else {
      log::warning(
          fmt::format("{}: eos_token_id {} is none of the model's tokens, 0 to {}; it is "
                      "ignored",
                      path, to_text(id), vocab - 1));
    }
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

[[noreturn]] void refuse_without_template(const ModelSource& source) {
  throw Error(ErrorKind::model,
              fmt::format("{}: the model has no chat template, so there is no telling how it wants "
                          "to be talked to; with --raw it continues plain text",
                          source.name()));
}

}  // namespace

ModelTexts read_texts(const ModelSource& source) {
  ModelTexts texts;
  texts.generation_config = read_json(source, "generation_config.json");
  const std::int32_t vocab = source.config().i("vocab_size");
  add_stop_tokens(texts.generation_config, source.path_of("generation_config.json"), vocab,
                  texts.stop_tokens);
  const Json config = read_json(source, "config.json");
  add_stop_tokens(config, source.path_of("config.json"), vocab, texts.stop_tokens);
  // Models of text and pictures have those of the text inside.
  const auto inner = config.find("text_config");
  if (inner != config.end() && inner->is_object()) {
    add_stop_tokens(*inner, source.path_of("config.json"), vocab, texts.stop_tokens);
  }
  if (const auto text = source.read("tokenizer.json")) {
    texts.tokenizer = Tokenizer::from_json(*text, source.path_of("tokenizer.json"),
                                           source.read("tokenizer_config.json").value_or(""),
                                           source.path_of("tokenizer_config.json"));
    const auto eos = texts.tokenizer->eos();
    if (eos && index(*eos) < vocab) add_once(texts.stop_tokens, *eos);
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
  if (!texts.chat_template) refuse_without_template(source);
  return *texts.chat_template;
}

void need_chat_template(const ModelSource& source) {
  if (!source.chat_template("default")) refuse_without_template(source);
}

}  // namespace hyb::app
