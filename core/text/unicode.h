#pragma once

namespace hyb {

/// Unicode's White_Space property.
bool is_white_space(char32_t code_point);

/// General categories Nd, Nl and No.
bool is_numeric(char32_t code_point);

/// General categories M*.
bool is_mark(char32_t code_point);

/// General categories P*, and all punctuation and symbols of ASCII.
bool is_punctuation(char32_t code_point);

/// UTS 18's word characters: Alphabetic, M*, Nd, Pc, and the two joiners.
bool is_word(char32_t code_point);

}  // namespace hyb
