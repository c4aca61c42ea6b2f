#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "app/model_source.h"
#include "core/base/ids.h"
#include "core/base/json.h"
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
};

/// Throws Error(model) naming the file that is damaged. An eos_token_id outside the vocabulary is a
/// warning: no answer can end with it.
ModelTexts read_texts(const ModelSource& source);

/// The tokenizer; Error(model) saying which file is missing when there is none.
const Tokenizer& need_tokenizer(const ModelTexts& texts, const ModelSource& source);

/// The chat template; Error(model) naming --raw when there is none.
const ChatTemplate& need_chat_template(const ModelTexts& texts, const ModelSource& source);

/// The same before anything else of the model is read.
void need_chat_template(const ModelSource& source);

}  // namespace hyb::app
