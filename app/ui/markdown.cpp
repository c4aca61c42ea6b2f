#include "app/ui/markdown.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <optional>
#include <utility>

#include "core/base/strings.h"

namespace hyb::app {
namespace {

constexpr std::size_t held_max = 400;  ///< bytes that a mark waits for what closes it
constexpr int line_max = 72;           ///< columns of what parts blocks
constexpr std::string_view punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

constexpr unsigned bit(Look look) { return static_cast<unsigned>(look); }

bool is_white(char c) { return c == ' ' || c == '\t' || c == '\n'; }
bool is_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || static_cast<unsigned char>(c) >= 0x80;
}

bool is_punctuation(char c) { return punctuation.find(c) != std::string_view::npos; }

/// Counts how often the character at `at` repeats.
std::size_t run_length(std::string_view text, std::size_t at) {
  const std::size_t end = text.find_first_not_of(text[at], at);
  return std::min(end, text.size()) - at;
}

std::string opening(unsigned looks) {
  std::string codes;
  const auto add = [&](Look look, const char* code) {
    if ((looks & bit(look)) != 0) codes += (codes.empty() ? "" : ";") + std::string(code);
  };
  add(Look::bold, "1");
  add(Look::faint, "2");
  add(Look::italic, "3");
  add(Look::link, "4");
  add(Look::struck, "9");
  add(Look::code, "36");
  return "\x1b[" + codes + "m";
}

/// Word by word, wide characters alone, so that no line is left with a look that has not ended.
std::string styled(const StyledText& run) {
  if (run.looks == 0) return run.text;
  const std::string open = opening(run.looks);
  const std::string_view text = run.text;
  std::string out, word;
  const auto end_word = [&] {
    if (!word.empty()) out += open + std::exchange(word, {}) + "\x1b[m";
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = next_grapheme(text, at);
    const std::string_view grapheme = text.substr(at, end - at);
    const bool is_alone = is_white(grapheme[0]) || columns(grapheme) > 1;
    if (is_alone) end_word();
    is_white(grapheme[0]) ? out += grapheme : word += grapheme;
    if (is_alone) end_word();
    at = end;
  }
  end_word();
  return out;
}

/// Reads the marks of one line.
class InlineReader {
 public:
  InlineReader(std::string_view text, bool is_whole, std::vector<StyledText>& out, char before)
      : text_(text), is_whole_(is_whole), out_(&out), before_(before) {}

  std::size_t read(unsigned looks) {
    std::size_t at = 0;
    while (at < text_.size()) {
      const std::size_t mark = std::min(text_.find_first_of("\\`*_~[", at), text_.size());
      add(text_.substr(at, mark - at), looks);
      at = mark;
      if (at == text_.size()) break;
      const std::optional<std::size_t> end = read_mark(at, looks);
      const bool may_wait = !is_whole_ && text_.size() - at < held_max;
      if (!end && may_wait) return at;
      const std::size_t literal = text_[at] == '\\' || text_[at] == '[' ? 1 : run_length(text_, at);
      if (!end) add(text_.substr(at, literal), looks);
      at = end.value_or(at + literal);
    }
    return at;
  }

 private:
  void add(std::string_view text, unsigned looks) {
    if (text.empty()) return;
    if (out_->empty() || out_->back().looks != looks) out_->push_back({.text = "", .looks = looks});
    out_->back().text += text;
  }

  void add_inner(std::string_view text, unsigned looks) {
    InlineReader(text, true, *out_, ' ').read(looks);
  }

  /// Returns the end of what the mark begins; nullopt if it begins nothing, as far as is known.
  std::optional<std::size_t> read_mark(std::size_t at, unsigned looks) {
    const char mark = text_[at];
    if (mark == '\\') return read_escape(at, looks);
    if (mark == '[') return read_link(at, looks);
    const std::size_t length = run_length(text_, at), begin = at + length;
    if (begin == text_.size()) return std::nullopt;  // the run may go on
    if (mark == '`') {
      const std::size_t end = closing(begin, mark, length);
      if (end == std::string_view::npos) return std::nullopt;
      std::string_view code = text_.substr(begin, end - begin);
      if (code.size() > 2 && code.starts_with(' ') && code.ends_with(' '))
        code = code.substr(1, code.size() - 2);
      add(code, looks | bit(Look::code));
      return end + length;
    }
    if (!may_open(at, begin) || length > 3 || (mark == '~' && length != 2))
      return as_text(at, length, looks);
    const std::size_t end = closing(begin, mark, length);
    if (end == std::string_view::npos) return std::nullopt;
    unsigned more = length > 1 ? bit(Look::bold) : 0;
    if (length != 2) more |= bit(Look::italic);
    add_inner(text_.substr(begin, end - begin), looks | (mark == '~' ? bit(Look::struck) : more));
    return end + length;
  }

  char char_before(std::size_t at) const { return at > 0 ? text_[at - 1] : before_; }

  // CommonMark's flanking runs, from `at` to `end`; where it wants a space, other scripts will do.
  bool may_open(std::size_t at, std::size_t end) const {
    const char before = char_before(at), next = end < text_.size() ? text_[end] : ' ';
    const bool is_inside = text_[at] == '_' && is_letter(before);
    return !is_white(next) && !is_inside &&
           (!is_punctuation(next) || is_white(before) || is_punctuation(before));
  }

  bool may_close(std::size_t at, std::size_t end) const {
    const char before = char_before(at), next = end < text_.size() ? text_[end] : ' ';
    const bool is_inside = text_[at] == '_' && is_letter(next);
    const bool is_wide = static_cast<unsigned char>(next) >= 0x80;
    return !is_white(before) && !is_inside &&
           (!is_punctuation(before) || is_white(next) || is_punctuation(next) || is_wide);
  }

  std::optional<std::size_t> as_text(std::size_t at, std::size_t length, unsigned looks) {
    add(text_.substr(at, length), looks);
    return at + length;
  }

  std::optional<std::size_t> read_escape(std::size_t at, unsigned looks) {
    if (at + 1 == text_.size()) return std::nullopt;
    if (punctuation.find(text_[at + 1]) == std::string_view::npos) return as_text(at, 1, looks);
    add(text_.substr(at + 1, 1), looks);
    return at + 2;
  }

  std::optional<std::size_t> read_link(std::size_t at, unsigned looks) {
    const std::size_t end = text_.find_first_of("[]", at + 1);
    if (end == std::string_view::npos || end + 1 == text_.size()) return std::nullopt;
    if (text_[end] == '[' || text_[end + 1] != '(') return as_text(at, 1, looks);
    const std::size_t close = text_.find(')', end);
    if (close == std::string_view::npos) return std::nullopt;
    const std::string_view name = text_.substr(at + 1, end - at - 1);
    const std::string_view target = text_.substr(end + 2, close - end - 2);
    add_inner(name, looks | bit(Look::link));
    if (name != target) add(" (" + std::string(target) + ")", looks | bit(Look::faint));
    return close + 1;
  }

  /// Returns where a run of exactly this length closes what began. It skips code, and what begins
  /// and ends in between, as a run closes the last one that is open.
  std::size_t closing(std::size_t from, char mark, std::size_t length) const {
    std::size_t open = 0;
    for (std::size_t at = from; at < text_.size();) {
      const char c = text_[at];
      if (c == '\\' && mark != '`') {
        at += 2;
        continue;
      }
      if (c != mark && c != '`') {
        ++at;
        continue;
      }
      const std::size_t run = run_length(text_, at), end = at + run;
      if (end == text_.size() && !is_whole_) return std::string_view::npos;
      if (c == mark && run == length) {
        const bool closes = mark == '`' || may_close(at, end);
        if (closes && open == 0) return at;
        if (closes) --open;
        if (!closes && may_open(at, end)) ++open;
      }
      const std::size_t code = c == '`' && mark != '`' ? closing(end, c, run) : end;
      if (code == std::string_view::npos && !is_whole_) return code;  // it may yet end
      at = code == std::string_view::npos ? end : code + run;
    }
    return std::string_view::npos;
  }

  std::string_view text_;
  bool is_whole_;
  std::vector<StyledText>* out_;
  char before_;
};

struct Language {
  std::string_view names;     ///< with spaces around
  std::string_view comment;   ///< to the end of the line
  std::string_view keywords;  ///< likewise
};

constexpr auto languages = std::to_array<Language>({
    {" c cpp c++ h cuda cu java cs csharp kotlin kt swift php scala dart ", "//",
     " abstract auto bool boolean break case catch char class const constexpr continue default "
     "delete do double else enum explicit extends extern false final float for foreach fun func "
     "function goto if implements import in inline int interface internal is let long namespace "
     "new null nullptr object operator override package private protected public return short "
     "signed sizeof static string struct super switch template this throw true try typedef "
     "typename union unsigned using val var virtual void volatile while yield "},
    {" js javascript ts typescript jsx tsx ", "//",
     " any as async await boolean break case catch class const continue default delete do else "
     "enum export extends false finally for from function if implements import in instanceof "
     "interface let new null number of private public readonly return static string super switch "
     "this throw true try type typeof undefined var void while yield "},
    {" rust rs go golang zig ", "//",
     " as async await bool break case chan const continue crate default defer dyn else enum "
     "fallthrough "
     "false fn for func go goto if impl import in interface let loop map match mod move mut nil "
     "package pub range ref return select self Self static string struct super switch trait true "
     "type unsafe use var where while "},
    {" python py ", "#",
     " and as assert async await break class continue def del elif else except False finally for "
     "from global if import in is lambda match None nonlocal not or pass raise return self True "
     "try "
     "while with yield "},
    {" sh bash zsh shell console ruby rb perl yaml yml toml r make makefile dockerfile cmake ", "#",
     " begin break case class continue def do done echo elif else elsif end esac exit export false "
     "fi for foreach function if in local module my next nil not or require return select self set "
     "sub then true unless until use while yield "},
    {" sql lua haskell hs ", "--",
     " ALTER AND AS BY CREATE DELETE DISTINCT DROP FROM GROUP HAVING IN INNER INSERT INTO IS JOIN "
     "KEY LEFT LIMIT NOT NULL ON OR ORDER OUTER PRIMARY SELECT SET TABLE UNION UPDATE VALUES WHERE "
     "and as by create data delete do else elseif end for from function group if in insert into "
     "join let limit local module nil not null of on or order repeat return select set table then "
     "type until update values where while "},
});

/// "| a | b |" in parts.
std::vector<std::string> cells_of(std::string_view row) {
  row = trim(row);
  if (row.starts_with('|')) row.remove_prefix(1);
  std::vector<std::string> cells(1);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool is_escaped = row[i] == '\\' && i + 1 < row.size() && row[i + 1] == '|';
    if (is_escaped) ++i;
    if (row[i] != '|' || is_escaped) {
      cells.back() += row[i];
    } else if (i + 1 < row.size()) {
      cells.emplace_back();
    }
  }
  for (std::string& cell : cells) cell = trim(cell);
  return cells;
}

bool is_delimiter(const std::vector<std::string>& cells) {
  return std::ranges::all_of(cells, [](const std::string& cell) {
    return !cell.empty() && cell.find_first_not_of(":-") == std::string::npos &&
           cell.find('-') != std::string::npos;
  });
}

struct Cell {
  std::string shown;
  int width;
};

Cell cell_of(const std::string& text, unsigned looks) {
  std::vector<StyledText> runs;
  read_inline(text, true, looks, runs);
  Cell cell{.shown = "", .width = 0};
  for (const StyledText& run : runs) {
    cell.shown += styled(run);
    cell.width += columns(run.text);
  }
  return cell;
}

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

std::string faint(const std::string& text) { return "\x1b[2m" + text + "\x1b[m"; }

}  // namespace

std::size_t read_inline(std::string_view text, bool is_whole, unsigned looks,
                        std::vector<StyledText>& out, char before) {
  return InlineReader(text, is_whole, out, before).read(looks);
}

std::string highlighted(std::string_view line, std::string_view language) {
  std::string name = " ";
  for (const char c : language)
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  name += ' ';
  const auto* const known = std::ranges::find_if(languages, [&](const Language& one) {
    return one.names.find(name) != std::string_view::npos;
  });
  const bool is_known = known != languages.end() && !language.empty();
  std::string out;
  std::size_t at = 0;
  const auto paint = [&](std::size_t length, const char* code) {
    const std::string_view part = line.substr(at, length);
    out += code == nullptr ? std::string(part) : std::string(code).append(part).append("\x1b[m");
    at += part.size();
  };
  while (at < line.size()) {
    const char c = line[at];
    const bool is_first = at == 0 || is_white(line[at - 1]) || is_known;
    if (is_known && line.substr(at).starts_with(known->comment) && is_first) {
      paint(line.size(), "\x1b[2m");
    } else if (c == '"' || c == '\'' || c == '`') {
      std::size_t end = at + 1;
      while (end < line.size() && line[end] != c) end += line[end] == '\\' ? 2 : 1;
      // An apostrophe without a partner is none.
      end < line.size() ? paint(end + 1 - at, "\x1b[32m") : paint(1, nullptr);
    } else if (is_letter(c) || c == '_') {
      std::size_t end = at;
      while (end < line.size() && (is_letter(line[end]) || line[end] == '_')) ++end;
      const std::string word = " " + std::string(line.substr(at, end - at)) + " ";
      const bool is_number = std::isdigit(static_cast<unsigned char>(c)) != 0;
      const bool is_keyword = is_known && known->keywords.find(word) != std::string_view::npos;
      paint(end - at, is_keyword ? "\x1b[1;34m" : is_number ? "\x1b[36m" : nullptr);
    } else {
      paint(1, nullptr);
    }
  }
  return out;
}

std::string MarkdownView::push(std::string_view text, int columns) {
  columns_ = std::max(columns, 1);
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    line_ += text.substr(0, end);
    if (end == std::string_view::npos) {
      take_part();
      break;
    }
    take_line_end();
    text.remove_prefix(end + 1);
  }
  return std::exchange(out_, {});
}

std::string MarkdownView::flush() {
  if (!line_.empty() || block_ == Block::text) {
    const bool is_code = !fence_.empty();
    take_line_end();
    if (!is_code && fence_.empty() && out_.ends_with('\n')) out_.pop_back();
  }
  show_table();
  if (!std::exchange(fence_, {}).empty()) show_line("");
  return std::exchange(out_, {});
}

/// A line of text is shown as far as it is known.
void MarkdownView::take_part() {
  if (!fence_.empty() || (block_ == Block::unknown && !begin_line(false))) return;
  if (block_ == Block::text) show_text(false);
}

void MarkdownView::take_line_end() {
  if (!fence_.empty()) {
    const std::string_view line = trim(line_);
    const bool ends = line.size() >= fence_.size() && line.starts_with(fence_) &&
                      line.find_first_not_of(fence_[0]) == std::string_view::npos;
    if (ends) {
      fence_.clear();
      show_line("");
    } else {
      const std::size_t indent = std::min(line_.find_first_not_of(' '), line_.size());
      const auto code = std::string_view(line_).substr(std::min(indent, fence_indent_));
      out_ += highlighted(code, language_) + "\n";
    }
  } else if (block_ != Block::unknown || begin_line(true)) {
    if (block_ == Block::table) rows_.push_back(line_);
    if (block_ == Block::text) {
      show_text(true);
      out_ += wrap_.flush() + "\n";
    }
  }
  line_.clear();
  block_ = Block::unknown;
}

/// True if the kind of the line is known, as that of a whole line is.
bool MarkdownView::begin_line(bool is_whole) {
  const std::size_t indent = std::min(line_.find_first_not_of(' '), line_.size());
  const std::string_view rest = std::string_view(line_).substr(indent);
  if (rest.empty() && !is_whole) return false;
  if (rest.starts_with('|')) {
    block_ = Block::table;
    return true;
  }
  if (!is_whole && (rest.starts_with('`') || rest.starts_with('~'))) {
    const std::size_t run = run_length(rest, 0);
    if (run >= 3 || run == rest.size()) return false;
  }
  const bool is_fence = rest.starts_with("```") || rest.starts_with("~~~");
  if ((indent >= 4 || rest.starts_with('\t')) && may_be_code_ && !rest.empty() && !is_fence) {
    if (!is_whole) return false;
    show_table();
    out_ += highlighted(line_, "") + "\n";
    block_ = Block::code;
    return true;
  }
  if (indent < 2 && !rest.empty()) in_list_ = false;  // an item begins it again
  may_be_code_ = rest.empty() && !in_list_;
  show_table();
  if (is_whole && read_fence(rest)) {
    fence_indent_ = indent;
    block_ = Block::code;
    return true;
  }
  if (!rest.empty() && std::string_view("#-*+_>0123456789").find(rest[0]) != std::string_view::npos)
    return begin_marked_line(indent, rest, is_whole);
  begin_text("", std::string(indent, ' '), 0, 0);
  return true;
}

/// A line that may begin with a heading's, a list's or a quote's mark, or be a rule.
bool MarkdownView::begin_marked_line(std::size_t indent, std::string_view rest, bool is_whole) {
  const char mark = rest[0];
  const std::string before(indent, ' ');
  std::size_t length = run_length(rest, 0);
  if (mark == '>') {
    if (rest.size() == 1 && !is_whole) return false;
    begin_text("\x1b[2m▌\x1b[m ", "\x1b[2m▌\x1b[m ", indent + (rest.substr(1, 1) == " " ? 2 : 1),
               0);
    return true;
  }
  const bool may_be_rule = mark == '-' || mark == '*' || mark == '_';
  if (may_be_rule && rest.find_first_not_of(std::string{mark, ' '}) == std::string_view::npos) {
    if (!is_whole) return false;
    if (std::ranges::count(rest, mark) >= 3) {
      show_line("");
      block_ = Block::code;  // it is shown
      return true;
    }
  }
  const bool is_number = std::isdigit(static_cast<unsigned char>(mark)) != 0;
  if (is_number) {
    length = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (length < rest.size() && (rest[length] == '.' || rest[length] == ')')) ++length;
  }
  if (length == rest.size() && !is_whole) return false;  // what follows decides
  const bool has_space = rest.substr(length, 1) == " ";
  if (mark == '#' && length <= 6 && has_space) {
    begin_text("", "", indent + length + 1, bit(Look::bold) | (length == 1 ? bit(Look::link) : 0));
    return true;
  }
  const bool is_bullet = length == 1 && (mark == '-' || mark == '*' || mark == '+');
  const bool is_item =
      is_number && length <= 4 && !std::isdigit(static_cast<unsigned char>(rest[length - 1]));
  if (!has_space || (!is_bullet && !is_item)) {
    begin_text("", before, 0, 0);
    return true;
  }
  in_list_ = true;
  const std::string shown = is_bullet ? "•" : std::string(rest.substr(0, length));
  begin_text(before + shown + " ", before + std::string(length + 1, ' '), indent + length + 1, 0);
  return true;
}

/// The line's text begins after `marked` bytes, which are shown as `first`. Lines into which it is
/// broken begin with the prefix.
void MarkdownView::begin_text(std::string_view first, std::string_view prefix, std::size_t marked,
                              unsigned looks) {
  block_ = Block::text;
  looks_ = looks;
  before_ = ' ';
  wrap_ = WordWrap(std::string(prefix));
  out_ += wrap_.push(first, columns_);
  line_.erase(0, marked);
}

bool MarkdownView::read_fence(std::string_view line) {
  if (!line.starts_with("```") && !line.starts_with("~~~")) return false;
  const std::size_t length = run_length(line, 0);
  const std::string_view words = trim(line.substr(length));
  if (line[0] == '`' && words.find('`') != std::string_view::npos) return false;
  fence_ = std::string(length, line[0]);
  language_ = words.substr(0, words.find_first_of(" {,"));
  show_line(language_);
  return true;
}

void MarkdownView::show_text(bool is_whole) {
  std::vector<StyledText> runs;
  const std::size_t read = read_inline(line_, is_whole, looks_, runs, before_);
  if (read > 0) before_ = line_[read - 1];
  line_.erase(0, read);
  for (const StyledText& run : runs) out_ += wrap_.push(styled(run), columns_);
}

/// A line across, with a word in it.
void MarkdownView::show_line(std::string_view word) {
  const int width = std::min(columns_, line_max);
  const std::string begin = word.empty() ? "" : "── " + std::string(word) + " ";
  out_ += faint(begin + repeated("─", std::max(0, width - columns(begin)))) + "\n";
}

/// Rows without a delimiter, and those that have no room, are shown as they are.
void MarkdownView::show_table() {
  if (rows_.empty()) return;
  const std::vector<std::string> rows = std::exchange(rows_, {});
  std::vector<std::vector<std::string>> cells;
  for (const std::string& row : rows) cells.push_back(cells_of(row));
  const std::size_t count = cells[0].size();
  const bool is_table = cells.size() > 1 && cells[1].size() == count && is_delimiter(cells[1]);
  std::vector<int> widths(count, 0);
  std::vector<std::vector<Cell>> shown;
  for (std::size_t i = 0; is_table && i < cells.size(); ++i) {
    if (i == 1) continue;
    cells[i].resize(std::max(count, cells[i].size()));
    std::vector<Cell>& row = shown.emplace_back();
    for (std::size_t at = 0; at < cells[i].size(); ++at) {
      row.push_back(cell_of(cells[i][at], i == 0 ? bit(Look::bold) : 0));
      if (at == widths.size()) widths.push_back(0);
      widths[at] = std::max(widths[at], row.back().width);
    }
  }
  const int width =
      std::accumulate(widths.begin(), widths.end(), 0) + 3 * static_cast<int>(widths.size());
  if (!is_table || width > columns_) {
    for (const std::string& row : rows) out_ += row + "\n";
    return;
  }
  for (std::size_t i = 0; i < shown.size(); ++i) {
    std::string line, under;
    for (std::size_t at = 0; at < shown[i].size(); ++at) {
      const int room = widths[at] - shown[i][at].width;
      const bool is_right =
          at < count && cells[1][at].ends_with(':') && !cells[1][at].starts_with(':');
      const std::string blanks(static_cast<std::size_t>(room), ' ');
      line += (at > 0 ? faint(" │ ") : "") + (is_right ? blanks : "") + shown[i][at].shown +
              (is_right || at + 1 == shown[i].size() ? "" : blanks);
      under += (at > 0 ? "─┼─" : "") + repeated("─", widths[at]);
    }
    out_ += line + "\n" + (i == 0 ? faint(under) + "\n" : "");
  }
}

}  // namespace hyb::app
