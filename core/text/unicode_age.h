#pragma once

namespace hyb {

/// True for marks, and characters that decompose or compose, which came after Unicode 9.0. Hugging
/// Face normalises with the tables of 9.0, so to tokenizers these are plain characters: what a
/// model was trained on is such text.
bool is_younger_than_normalization(char32_t code_point);

}  // namespace hyb
