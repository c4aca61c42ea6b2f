#include "app/ui/entry.h"

namespace hyb::app {
namespace {

constexpr std::string_view mark = "\"\"\"";

std::string_view without_space_at_end(std::string_view text) {
  const std::size_t last = text.find_last_not_of(" \t\n");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

std::optional<Entry> finish_marked(std::string_view text) {
  text = without_space_at_end(text);
  if (text.size() < 2 * mark.size() || !text.ends_with(mark)) return std::nullopt;
  text.remove_prefix(mark.size());
  text.remove_suffix(mark.size());
  // The marks may stand in lines of their own.
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return Entry{std::string(text), true};
}

}  // namespace

std::optional<Entry> finish_entry(std::string_view text) {
  if (text.starts_with(mark)) return finish_marked(text);
  if (text.ends_with('\\')) return std::nullopt;
  return Entry{std::string(text)};
}

std::string continued(std::string text) {
  if (text.ends_with('\\') && !text.starts_with(mark)) text.pop_back();
  return text += '\n';
}

std::string as_entry(const std::string& text) {
  const bool is_plain = !text.ends_with('\\') && !text.starts_with(mark);
  const bool can_be_marked = text.find(mark) == std::string::npos && !text.ends_with('"');
  if (is_plain || !can_be_marked) return text;
  return std::string(mark) + '\n' + text + '\n' + std::string(mark);
}

}  // namespace hyb::app
