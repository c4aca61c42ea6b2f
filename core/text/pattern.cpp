#include "core/text/pattern.h"

#include <pcre2.h>

#include <array>

#include "core/base/error.h"
#include "core/text/pattern_dialect.h"
#include "core/text/unicode.h"

namespace hyb {

/// Owners of what PCRE2 hands out.
namespace pcre2 {

template <auto release>
struct Release {
  template <typename T>
  void operator()(T* thing) const {
    release(thing);
  }
};

using Code = std::unique_ptr<pcre2_code, Release<pcre2_code_free>>;
using CompileOptions = std::unique_ptr<pcre2_compile_context, Release<pcre2_compile_context_free>>;
using MatchOptions = std::unique_ptr<pcre2_match_context, Release<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Release<pcre2_match_data_free>>;
using Stack = std::unique_ptr<pcre2_jit_stack, Release<pcre2_jit_stack_free>>;

}  // namespace pcre2

namespace {

constexpr std::uint32_t match_limit = 100'000'000;
constexpr std::uint32_t depth_limit = 100'000;
constexpr std::uint32_t heap_limit_kib = 256 << 10;
constexpr std::size_t stack_first = 32 << 10;
constexpr std::size_t stack_most = 64 << 20;

std::string message_of(int number) {
  std::array<unsigned char, 256> text{};
  pcre2_get_error_message(number, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

/// Escapes every character that is special in Ruby's syntax.
std::string escape_ruby(std::string_view text) {
  constexpr std::string_view special = R"(\^$.[]|()?*+{})";
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

pcre2::MatchOptions make_match_options() {
  pcre2::MatchOptions options(pcre2_match_context_create(nullptr));
  if (!options) throw Error(ErrorKind::memory, "pattern: no memory left for matching");
  pcre2_set_match_limit(options.get(), match_limit);
  pcre2_set_depth_limit(options.get(), depth_limit);
  pcre2_set_heap_limit(options.get(), heap_limit_kib);
  return options;
}

}  // namespace

struct Pattern::Compiled {
  pcre2::Code code;
};

/// One pass over a text.
class Pattern::Search {
 public:
  Search(const Pattern& pattern, std::string_view text)
      : pattern_(pattern),
        text_(text),
        options_(make_match_options()),
        data_(pcre2_match_data_create(1, nullptr)) {
    if (!data_) throw Error(ErrorKind::memory, "pattern: no memory left for matching");
  }

  /// Finds the first match at or after `from`.
  bool find(std::size_t from, std::size_t& begin, std::size_t& end) {
    int result = match(from);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT && !stack_) {
      stack_.reset(pcre2_jit_stack_create(stack_first, stack_most, nullptr));
      pcre2_jit_stack_assign(options_.get(), nullptr, stack_.get());
      result = match(from);
    }
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result < 0) {
      throw Error(ErrorKind::model, pattern_.source_ + ": the pattern \"" +
                                        excerpt(pattern_.written_) +
                                        "\" exceeds its match limits on this text at byte " +
                                        std::to_string(from) + ": " + message_of(result));
    }
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer(data_.get());
    begin = place[0];
    end = place[1];
    return true;
  }

 private:
  int match(std::size_t from) {
    // The text was validated once; checking the rest of it for every match would be quadratic.
    return pcre2_match(pattern_.compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text_.data()),
                       text_.size(), from, PCRE2_NO_UTF_CHECK, data_.get(), options_.get());
  }

  const Pattern& pattern_;
  std::string_view text_;
  pcre2::MatchOptions options_;
  pcre2::MatchData data_;
  pcre2::Stack stack_;
};

Pattern::Pattern(std::string_view oniguruma, std::string_view source)
    : written_(oniguruma), source_(source) {
  const std::string text = translate_pattern(oniguruma, source);
  const pcre2::CompileOptions options(pcre2_compile_context_create(nullptr));
  if (!options) throw Error(ErrorKind::memory, "pattern: no memory left for compiling");
  pcre2_set_newline(options.get(), PCRE2_NEWLINE_LF);
  pcre2_set_bsr(options.get(), PCRE2_BSR_UNICODE);
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2::Code code(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE,
      &error, &place, options.get()));
  if (!code) {
    throw Error(ErrorKind::model,
                source_ + ": cannot use the pattern \"" + written_ + "\": " + message_of(error));
  }
  // Where PCRE2 has no JIT, its interpreter does the same, slower.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  compiled_ = std::make_unique<Compiled>(Compiled{std::move(code)});
}

Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Pattern Pattern::literal(std::string_view text, std::string_view source) {
  return Pattern(escape_ruby(text), source);
}

void Pattern::each_match(std::string_view text, const Found& found) const {
  Search search(*this, text);
  std::size_t from = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t last_end = std::string_view::npos;
  while (from <= text.size() && search.find(from, begin, end)) {
    if (begin == end && end == last_end) {
      // An empty match directly after the last one: continue after the next character.
      ++from;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
      continue;
    }
    from = end;
    last_end = end;
    found(begin, end);
  }
}

}  // namespace hyb
