#include "core/text/guarded_text.h"

#include <algorithm>

#include "core/text/unicode.h"

namespace hyb {

void GuardedText::append(std::string_view more, Guard guard) {
  if (more.empty()) return;
  if (text.empty()) uniform = guard;
  if (guards.empty() && guard != uniform) guards.assign(text.size(), uniform);
  text.append(more);
  if (!guards.empty()) guards.resize(text.size(), guard);
}

GuardedText GuardedText::slice(std::size_t begin, std::size_t end) const {
  GuardedText out{text.substr(begin, end - begin), {}, uniform};
  if (guards.empty()) return out;
  const auto first = guards.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto last = guards.begin() + static_cast<std::ptrdiff_t>(end);
  if (first != last) out.uniform = *first;
  if (std::adjacent_find(first, last, std::not_equal_to<>()) != last)
    out.guards.assign(first, last);
  return out;
}

GuardedRewrite::GuardedRewrite(const GuardedText& source, GrowthLimit* growth)
    : source_(source), growth_(growth) {
  out_.text.reserve(source.text.size());
  out_.guards.reserve(source.guards.size());
  out_.uniform = source.uniform;
}

void GuardedRewrite::keep(std::size_t begin, std::size_t end) {
  out_.text.append(source_.text, begin, end - begin);
  if (source_.guards.empty()) return;
  out_.guards.insert(out_.guards.end(), source_.guards.begin() + static_cast<std::ptrdiff_t>(begin),
                     source_.guards.begin() + static_cast<std::ptrdiff_t>(end));
}

void GuardedRewrite::put(std::string_view text, std::size_t begin, std::size_t end) {
  if (growth_ != nullptr) growth_->charge(end - begin, text.size());
  out_.text.append(text);
  if (source_.guards.empty()) return;
  Guard guard = Guard::open;
  for (std::size_t at = begin; at < end; ++at) guard = std::max(guard, source_.guards[at]);
  out_.guards.resize(out_.text.size(), guard);
}

GuardedText well_formed(const GuardedText& source) {
  GuardedRewrite out(source);
  for (std::size_t at = 0; at < source.text.size();) {
    const Utf8Unit unit = read_utf8(source.text, at);
    if (unit.kind == Utf8Unit::Kind::character) {
      out.keep(at, at + unit.bytes);
    } else {
      out.put(replacement_character, at, at + unit.bytes);
    }
    at += unit.bytes;
  }
  return out.take();
}

}  // namespace hyb
