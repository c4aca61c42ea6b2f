#include "core/text/unicode.h"

#include <utf8proc.h>

namespace hyb {
namespace {

utf8proc_category_t category_of(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

bool is_between(char32_t code_point, char32_t first, char32_t last) {
  return code_point >= first && code_point <= last;
}

}  // namespace

bool is_white_space(char32_t code_point) {
  if (code_point < 0x80) return code_point == ' ' || is_between(code_point, 9, 13);
  switch (code_point) {
    case 0x85:
    case 0xA0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x3000:
      return true;
    default:
      return is_between(code_point, 0x2000, 0x200A);
  }
}

bool is_numeric(char32_t code_point) {
  if (code_point < 0x80) return is_between(code_point, '0', '9');
  const auto category = category_of(code_point);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_mark(char32_t code_point) {
  const auto category = category_of(code_point);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool is_punctuation(char32_t code_point) {
  if (code_point < 0x80) {
    return is_between(code_point, '!', '/') || is_between(code_point, ':', '@') ||
           is_between(code_point, '[', '`') || is_between(code_point, '{', '~');
  }
  const auto category = category_of(code_point);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_word(char32_t code_point) {
  const auto category = category_of(code_point);
  const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
  // Circled and squared letters are symbols (So) with the property Other_Alphabetic.
  const bool framed =
      is_between(code_point, 0x24B6, 0x24E9) || is_between(code_point, 0x1F130, 0x1F149) ||
      is_between(code_point, 0x1F150, 0x1F169) || is_between(code_point, 0x1F170, 0x1F189);
  const bool joiner = code_point == 0x200C || code_point == 0x200D;
  return letter || is_mark(code_point) || category == UTF8PROC_CATEGORY_ND ||
         category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC || framed || joiner;
}

}  // namespace hyb
