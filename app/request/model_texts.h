#pragma once

#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "app/model/model_source.h"
#include "app/request/sampling_options.h"
#include "core/base/ids.h"
#include "core/base/json.h"
#include "core/engine/request.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

/// Everything of a model that is about text; no weight is read for it.
struct ModelTexts {
  Json generation_config = Json::object();
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  /// End-of-answer tokens: generation_config, config (its text_config too) and tokenizer_config
  /// together.
  std::vector<TokenId> stop_tokens;
  std::vector<TokenId> banned_tokens;  ///< that generation_config has never drawn, ascending
};

/// Throws Error(model) naming the file that is damaged. An eos_token_id that the vocabulary lacks
/// is a warning where there is another one, else an error: no answer would end.
ModelTexts read_texts(const ModelSource& source);

/// The part of it that generation_config.json and config.json say: where answers end, and what is
/// never drawn. `texts` has its tokenizer, where there is one.
void read_generation_config(const ModelSource& source, ModelTexts& texts);

/// The tokenizer; Error(model) saying which file is missing when there is none.
const Tokenizer& need_tokenizer(const ModelTexts& texts, const ModelSource& source);

/// The chat template; Error(model) naming --raw when there is none.
const ChatTemplate& need_chat_template(const ModelTexts& texts, const ModelSource& source);

/// The same before anything else of the model is read.
void need_chat_template(const ModelSource& source);

/// A request with the model's stop tokens and the options' sampling; the prompt is empty.
Request request_of(const GenerationOptions& options, const ModelTexts& texts);

}  // namespace hyb::app
