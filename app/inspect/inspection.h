#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/inspect/tensor_check.h"
#include "app/model_outline.h"
#include "app/template_probe.h"
#include "models/roofline.h"

namespace hyb::app {

/// All that `hyb inspect` says of a model. Reads headers and texts, no weights.
struct Inspection {
  std::string name;
  ModelOutline outline;
  std::int64_t parameters = 0;
  std::int64_t active_parameters = 0;    ///< that one token goes through, the head included
  std::size_t weight_bytes = 0;          ///< of the weights in memory
  double decode_bytes = 0;               ///< moved for one token at position decode_position
  std::optional<TensorCheck> tensors;    ///< none: the folder has no weights
  std::string tokenizer, chat_template;  ///< what is there, in words; or why it can't be used
  bool has_tokenizer = false, has_chat_template = false;
  std::optional<TemplateTraits> traits;  ///< of the chat template, where there is a tokenizer too

  static constexpr std::int64_t decode_position = 1024;
};

Inspection inspect(const ModelSource& source, const ModelOptions& options);

/// For people; `all_tensors` adds a line per tensor.
std::string inspection_text(const Inspection& inspection, bool all_tensors);

Json inspection_json(const Inspection& inspection, bool all_tensors);

}  // namespace hyb::app
