#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/inspect/inspection.h"
#include "app/model/model_source.h"
#include "core/base/json.h"
#include "core/io/tensor_files.h"

namespace hyb::app {

/// Something that was found in a tensor or a file.
struct Finding {
  std::string name;  ///< of the tensor or the file
  std::string text;
};

/// Findings of `hyb inspect --check` in the numbers and texts of a model.
struct ContentCheck {
  std::vector<Finding> defects;  ///< the model should not be used
  std::vector<Finding> notes;    ///< unusual, but possible
  std::size_t tensors = 0;       ///< that were read
  std::uint64_t bytes = 0;
  std::chrono::nanoseconds duration{0};
};

/// Called now and then with the bytes that were read.
using BytesRead = std::function<void(std::uint64_t)>;

/// Reads every number of the weights. NaN and infinities are defects of tensors that the plan
/// needs, and scales that are not above 0 as well; tensors of zeros alone, and NaN and infinities
/// elsewhere, are notes. Page cache that was read is given back.
void check_weight_values(const TensorCheck& tensors, TensorFiles& files, ContentCheck& check,
                         const BytesRead& progress);

/// Reads the tokenizer, the chat template and the files that name special tokens. Defects: what
/// can't be read or has ids that the embedding lacks, special tokens that the vocabulary lacks,
/// texts whose encoding has ids out of range or whose decoding is encoded to another text. Notes:
/// rows of the embedding without a token, texts that are normalised.
void check_tokenizer(const ModelSource& source, const models::Plan& plan, ContentCheck& check);

/// For people: defects one by one, notes shortened.
std::string content_text(const ContentCheck& check);

Json content_json(const ContentCheck& check);

}  // namespace hyb::app
