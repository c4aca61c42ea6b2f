#include "core/text/jinja/percent_format.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "core/text/jinja/arguments.h"
#include "core/text/jinja/fault.h"
#include "core/text/jinja/format.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/unicode.h"

namespace hyb::jinja {
namespace {

constexpr std::size_t width_max = 4096;

struct Directive {
  std::string_view key;  ///< of %(key)s
  bool keyed = false;
  bool left = false;
  std::string flags{};  ///< those that numbers take
  std::size_t width = 0;
  std::optional<std::size_t> precision{};
  char conversion = 's';
};

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Text& format, const Value& values)
      : runtime_(runtime), format_(format), values_(values), out_(runtime.new_buffer()) {}

  Text run() {
    const std::string_view view = format_.view();
    while (at_ < view.size()) {
      const std::size_t percent = std::min(view.find('%', at_), view.size());
      append(runtime_.meter(), out_, format_.slice(at_, percent));
      at_ = percent;
      if (at_ < view.size()) write(read_directive(view));
    }
    if (!used_all()) throw Fault("not all arguments of '%' were used");
    return Runtime::whole(out_);
  }

 private:
  std::optional<std::size_t> read_number(std::string_view view) {
    std::size_t value = 0;
    const auto result = std::from_chars(view.data() + at_, view.data() + view.size(), value);
    if (result.ec == std::errc::invalid_argument) return std::nullopt;
    if (result.ec != std::errc{} || value > width_max) throw Fault("'%' with a width over 4096");
    at_ = static_cast<std::size_t>(result.ptr - view.data());
    return value;
  }

  Directive read_directive(std::string_view view) {
    Directive directive;
    ++at_;
    if (at_ < view.size() && view[at_] == '(') {
      const std::size_t close = view.find(')', at_);
      if (close == std::string_view::npos) throw Fault("'%(' without ')'");
      directive.key = view.substr(at_ + 1, close - at_ - 1);
      directive.keyed = true;
      at_ = close + 1;
    }
    for (; at_ < view.size() && std::string_view("#0- +").find(view[at_]) != std::string_view::npos;
         ++at_) {
      if (view[at_] == '-')
        directive.left = true;
      else
        directive.flags += view[at_];
    }
    directive.width = read_number(view).value_or(0);
    if (at_ < view.size() && view[at_] == '.') {
      ++at_;
      directive.precision = read_number(view).value_or(0);
    }
    if (at_ >= view.size()) throw Fault("an incomplete '%' directive");
    directive.conversion = view[at_++];
    return directive;
  }

  Value next_value(const Directive& directive) {
    if (directive.keyed) {
      if (!values_.is(Kind::dict)) throw Fault("'%(name)' needs a dict");
      const Value* found = values_.dict().find(directive.key);
      if (found == nullptr) throw Fault("'%' finds no '" + std::string(directive.key) + "'");
      keyed_ = true;
      return *found;
    }
    if (!values_.is(Kind::tuple)) {
      if (taken_++ > 0) throw Fault("not enough arguments for '%'");
      return values_;
    }
    if (taken_ >= values_.list().items.size()) throw Fault("not enough arguments for '%'");
    return values_.list().items[taken_++];
  }

  bool used_all() const {
    if (values_.is(Kind::tuple)) return taken_ >= values_.list().items.size();
    // What can be subscripted may go unused, as in Python.
    const bool may_rest =
        values_.is(Kind::dict) || values_.is(Kind::list) || values_.is(Kind::range);
    return taken_ > 0 || keyed_ || may_rest || values_.is_undefined();
  }

  void write(const Directive& directive) {
    if (directive.conversion == '%') {
      out_.append(runtime_.meter(), "%", TextSource::tmpl);
      return;
    }
    const Value value = next_value(directive);
    Text text;
    switch (directive.conversion) {
      case 's':
        text = to_text(runtime_, value);
        break;
      case 'r':
      case 'a': {
        MarkedBuffer& buffer = runtime_.new_buffer();
        append_repr(runtime_, buffer, value);
        text = Runtime::whole(buffer);
        break;
      }
      case 'c':
        if (!value.is_text()) throw Fault("'%c' takes a character");
        text = value.text();
        break;
      default:
        write_padded(directive, number(directive, value));
        return;
    }
    if (directive.precision && directive.conversion != 'c') {
      const std::size_t most = std::min(character_count(text), *directive.precision);
      text = text.slice(0, byte_offset(text, most));
    }
    write_padded(directive, text);
  }

  void write_padded(const Directive& directive, const Text& text) {
    const std::size_t count = character_count(text);
    const std::string pad(directive.width > count ? directive.width - count : 0, ' ');
    if (!directive.left) out_.append(runtime_.meter(), pad, TextSource::tmpl);
    append(runtime_.meter(), out_, text);
    if (directive.left) out_.append(runtime_.meter(), pad, TextSource::tmpl);
  }

  Text number(const Directive& directive, const Value& value) {
    if (!value.is_number()) {
      throw Fault(std::string("'%") + directive.conversion + "' takes a number, got " +
                  type_name(value));
    }
    const std::size_t precision = std::min<std::size_t>(directive.precision.value_or(6), 400);
    const std::string width = directive.left ? "" : std::to_string(directive.width);
    std::string pattern = "%" + directive.flags + width;
    std::array<char, 2 * width_max> out{};
    int written = 0;
    switch (directive.conversion) {
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        written = print_integer(directive, value, pattern, out);
        break;
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
        pattern += ".*";
        pattern += directive.conversion;
        written = std::snprintf(out.data(), out.size(), pattern.c_str(),
                                static_cast<int>(precision), value.real());
        break;
      default:
        throw Fault(std::string("unknown directive '%") + directive.conversion + "'");
    }
    if (written < 0) throw Fault("a number can't be formatted");
    return runtime_.text({out.data(), static_cast<std::size_t>(written)});
  }

  int print_integer(const Directive& directive, const Value& value, std::string pattern,
                    std::array<char, 2 * width_max>& out) {
    std::int64_t integer = value.integer();
    if (value.is(Kind::real)) {
      const bool decimal =
          std::string_view("diu").find(directive.conversion) != std::string_view::npos;
      if (!decimal || !(std::abs(value.real()) < 9.2e18)) {
        throw Fault(std::string("'%") + directive.conversion + "' takes an integer");
      }
      integer = static_cast<std::int64_t>(value.real());
    }
    const bool signed_conversion =
        std::string_view("diu").find(directive.conversion) != std::string_view::npos;
    if (!signed_conversion && integer < 0) {
      throw Fault(std::string("'%") + directive.conversion + "' of a negative number");
    }
    if (directive.precision) pattern.append(1, '.').append(std::to_string(*directive.precision));
    pattern += "l";
    pattern += directive.conversion == 'u' ? 'd' : directive.conversion;
    return std::snprintf(out.data(), out.size(), pattern.c_str(), static_cast<long>(integer));
  }

  Runtime& runtime_;
  Text format_;
  Value values_;
  MarkedBuffer& out_;
  std::size_t at_ = 0;
  std::size_t taken_ = 0;
  bool keyed_ = false;
};

/// The value that the inside of {...} names.
Value braces_value(std::string_view field, const Arguments& arguments, std::size_t& automatic) {
  std::size_t position = 0;
  if (field.empty()) {
    position = automatic++;
  } else {
    const auto read = std::from_chars(field.data(), field.data() + field.size(), position);
    if (read.ec != std::errc{} || read.ptr != field.data() + field.size()) {
      for (const auto& [name, value] : arguments.named) {
        if (name == field) return value;
      }
      throw Fault("format: no argument '" + std::string(field) + "'");
    }
  }
  if (position < arguments.positional.size()) return arguments.positional[position];
  throw Fault("format: not enough arguments");
}

}  // namespace

Text format_percent(Runtime& runtime, const Text& format, const Value& values) {
  return PercentFormatter(runtime, format, values).run();
}

Text format_braces(Runtime& runtime, const Text& format, const Arguments& arguments) {
  MarkedBuffer& out = runtime.new_buffer();
  const std::string_view view = format.view();
  std::size_t automatic = 0;
  for (std::size_t at = 0; at < view.size();) {
    const std::size_t brace = std::min(view.find_first_of("{}", at), view.size());
    append(runtime.meter(), out, format.slice(at, brace));
    if (brace == view.size()) break;
    const bool doubled = brace + 1 < view.size() && view[brace + 1] == view[brace];
    if (doubled) {
      append(runtime.meter(), out, format.slice(brace, brace + 1));
      at = brace + 2;
      continue;
    }
    const std::size_t close = view.find('}', brace);
    if (view[brace] == '}' || close == std::string_view::npos) throw Fault("format: a lone brace");
    const std::string_view field = view.substr(brace + 1, close - brace - 1);
    if (field.find_first_of(":!.[{") != std::string_view::npos) {
      throw Fault("format: only {}, {0} and {name} are supported, got {" + std::string(field) +
                  "}");
    }
    append(runtime.meter(), out, to_text(runtime, braces_value(field, arguments, automatic)));
    at = close + 1;
  }
  return Runtime::whole(out);
}

}  // namespace hyb::jinja
