#include "app/request/model_texts.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "app/request/generation_config.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "core/text/unicode.h"

namespace hyb::app {
namespace {

void add_once(std::vector<TokenId>& tokens, TokenId token) {
  if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
}

/// The end-of-answer tokens that files name.
class StopTokens {
 public:
  /// Adds eos_token_id: a number or a list of them.
  void add(const Json& config, const std::string& path) {
    const auto found = config.find("eos_token_id");
    if (found == config.end() || found->is_null()) return;
    if (!found->is_array()) return add_id(*found, *found, path);
    for (const Json& id : *found) add_id(id, *found, path);
  }

  /// Those that the model and its tokenizer have. Others are dropped: no answer can end with them.
  /// Throws Error(model) where only such ones are named: no answer would end.
  std::vector<TokenId> take(std::int32_t vocab, const std::optional<Tokenizer>& tokenizer) const {
    const auto exists = [&](TokenId token) {
      return index(token) < vocab && (!tokenizer || !tokenizer->piece(token).empty());
    };
    std::vector<TokenId> tokens;
    for (const Named& named : named_) {
      if (exists(named.token)) add_once(tokens, named.token);
    }
    if (tokenizer && tokenizer->eos() && exists(*tokenizer->eos())) {
      add_once(tokens, *tokenizer->eos());
    }
    for (const Named& named : named_) {
      if (exists(named.token)) continue;
      const std::string text = fmt::format("{}: eos_token_id {} is no token of the vocabulary",
                                           named.path, index(named.token));
      if (tokens.empty()) throw Error(ErrorKind::model, text + ", so no answer would end");
      log::warning(text + "; it is ignored");
    }
    return tokens;
  }

 private:
  struct Named {
    TokenId token;
    std::string path;
  };

  void add_id(const Json& id, const Json& all, const std::string& path) {
    const bool is_id = id.is_number_integer() && id >= 0 && id <= INT32_MAX;
    if (!is_id) {
      throw Error(ErrorKind::model,
                  fmt::format("{}: eos_token_id must be a whole number from 0 to {} or a list of "
                              "them, is {}",
                              path, INT32_MAX, excerpt(to_text(all))));
    }
    named_.push_back({TokenId{id.get<std::int32_t>()}, path});
  }

  std::vector<Named> named_;
};

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
  const std::string names = source.chat_template_names();
  throw Error(ErrorKind::model,
              fmt::format("{}: the model has no {}, so the format of its prompts is unknown; {}; "
                          "run and batch continue plain text with --raw",
                          source.name(),
                          names.empty() ? "chat template" : "default among its chat templates",
                          names.empty() ? "--chat-template FILE gives it one"
                                        : "--chat-template names one of " + names));
}

}  // namespace

ModelTexts read_texts(const ModelSource& source) {
  ModelTexts texts;
  texts.tokenizer = source.tokenizer();
  read_generation_config(source, texts);
  if (const auto found = source.chat_template()) {
    texts.chat_template = ChatTemplate::parse(found->text, found->name);
    if (const auto tools = source.tool_template()) {
      texts.chat_template->use_with_tools(ChatTemplate::parse(tools->text, tools->name));
    }
  }
  return texts;
}

void read_generation_config(const ModelSource& source, ModelTexts& texts) {
  texts.generation_config = read_json(source, "generation_config.json");
  StopTokens stops;
  stops.add(texts.generation_config, source.path_of("generation_config.json"));
  const Json config = read_json(source, "config.json");
  stops.add(config, source.path_of("config.json"));
  // Models of text and pictures have those of the text inside.
  const auto inner = config.find("text_config");
  if (inner != config.end() && inner->is_object()) {
    stops.add(*inner, source.path_of("config.json"));
  }
  const std::int32_t rows = source.config().i("vocab_size");
  texts.stop_tokens = stops.take(rows, texts.tokenizer);
  texts.banned_tokens = banned_tokens(
      texts.generation_config, texts.tokenizer ? std::min(rows, texts.tokenizer->size()) : rows);
}

const Tokenizer& need_tokenizer(const ModelTexts& texts, const ModelSource& source) {
  if (texts.tokenizer) return *texts.tokenizer;
  const bool has_other = source.folder() && is_listed(*source.folder() / "tokenizer.model");
  throw Error(ErrorKind::model,
              source.path_of("tokenizer.json") +
                  ": is missing; without it there is no text in or out" +
                  (has_other ? ". There is a tokenizer.model, which is not read; transformers "
                               "writes the other: "
                               "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
                             : ""));
}

const ChatTemplate& need_chat_template(const ModelTexts& texts, const ModelSource& source) {
  if (!texts.chat_template) refuse_without_template(source);
  return *texts.chat_template;
}

void need_chat_template(const ModelSource& source) {
  if (!source.chat_template()) refuse_without_template(source);
}

Request request_of(const GenerationOptions& options, const ModelTexts& texts) {
  Request request;
  GenerationDefaults defaults = generation_defaults(texts.generation_config, options);
  request.max_tokens = options.max_tokens.value_or(defaults.max_tokens.value_or(-1));
  request.sampling = sampling_of(options, texts.generation_config);
  request.sampling.banned = texts.banned_tokens;
  request.stop = options.stop.empty() ? std::move(defaults.stop) : options.stop;
  request.stop_tokens = texts.stop_tokens;
  request.ignore_eos = options.ignore_eos;
  return request;
}

}  // namespace hyb::app
