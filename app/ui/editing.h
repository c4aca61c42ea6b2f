#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/ui/keys.h"

namespace hyb::app {

/// Text that a person entered, without the marks of multi-line input.
struct Entry {
  std::string text;
  bool is_literal = false;  ///< was between """ marks: never a command
};

/// Reads a text at the end of a line. None: it continues in the next line, because it ends in a
/// backslash, or because it begins with """ and the closing """ is not at its end yet.
std::optional<Entry> finish_entry(std::string_view text);

/// Continues an unfinished text on the next line: a line break replaces the backslash that ended
/// the line.
std::string continued(std::string text);

/// Returns the entry that finish_entry() turns into `text`, if there is one: a text that itself has
/// """ marks and ends in a backslash is returned unchanged.
std::string as_entry(const std::string& text);

/// The entries of an editor, oldest first, kept in a file across runs when there is one. The file
/// has one line per entry: "\n" for a line break, "\\" for a backslash; mode 0600. A file that
/// cannot be read or written is warned of once, and history continues without it.
class History {
 public:
  static constexpr std::size_t entries_max = 1000;
  static constexpr std::size_t stored_bytes_max =
      64 * 1024;  ///< longer entries stay out of the file

  /// Without a file: entries of this run only.
  History() = default;
  explicit History(std::filesystem::path file);

  const std::vector<std::string>& entries() const { return entries_; }

  /// Adds an entry, unless it is empty or the same as the last one.
  void add(const std::string& entry);

 private:
  void load();
  void append(const std::string& entry);
  void rewrite();
  void give_up(const std::string& reason);

  std::optional<std::filesystem::path> file_;
  std::vector<std::string> entries_;
};

/// Text being edited, and where the cursor is in it. The text is well-formed UTF-8 and may have
/// several lines; the cursor is a byte offset and is never inside a grapheme cluster by its own
/// moves. Words are runs of letters, digits and everything beyond ASCII.
class LineBuffer {
 public:
  const std::string& text() const { return text_; }
  std::size_t cursor() const { return cursor_; }
  bool empty() const { return text_.empty(); }

  /// Replaces everything; the cursor goes to the end.
  void set(std::string text);

  /// At the cursor; what is ill-formed becomes U+FFFD.
  void insert(std::string_view text);

  void move_left();
  void move_right();
  void move_word_left();
  void move_word_right();
  void move_home();  ///< to the start of the line; from there, to the start of the line above
  void move_end();   ///< to the end of the line; from there, to the end of the line below
  bool move_up();    ///< false: already in the first line
  bool move_down();  ///< false: already in the last line

  void erase_left();
  void erase_right();

  // These keep the text that they remove for yank().
  void kill_to_end();  ///< of the line; at its end, the line break
  void kill_to_begin();
  void kill_word_left();   ///< back to white space, as a shell does
  void kill_word_right();  ///< to the end of the word
  void yank();

 private:
  std::size_t line_begin(std::size_t at) const;
  std::size_t line_end(std::size_t at) const;
  std::size_t word_left() const;
  std::size_t word_right() const;
  void move_to_column(std::size_t begin, int column);
  void kill(std::size_t begin, std::size_t end);

  std::string text_;
  std::size_t cursor_ = 0;
  std::string killed_;
};

/// Effect of a key, seen from outside.
enum class Outcome : std::uint8_t {
  edited,        ///< text or cursor may have changed
  entered,       ///< entry() is complete
  interrupted,   ///< Ctrl-C; the text is as it was
  end_of_input,  ///< Ctrl-D in an empty text
  choices,       ///< Tab fits several words: choices()
  clear_screen,
  suspend,
  editor,  ///< the text is to be edited elsewhere: replace()
};

/// Returns the completions by Tab of the text before the cursor; each begins with that text.
using Completer = std::function<std::vector<std::string>(std::string_view typed)>;

/// The editor without a terminal: keys in, text and cursor out.
class Editing {
 public:
  /// `draft` is the initial text. History and completer outlive this; the latter may be empty.
  Editing(const History& history, const Completer& completer, std::string draft = {})
      : history_(&history), completer_(&completer) {
    buffer_.set(std::move(draft));
  }

  Outcome apply(const Key& key);

  /// Replaces the text; the cursor goes to its end.
  void replace(std::string text) { buffer_.set(std::move(text)); }

  const LineBuffer& buffer() const { return buffer_; }
  const Entry& entry() const { return entry_; }
  const std::vector<std::string>& choices() const { return choices_; }

  /// While Ctrl-R searches the history: what has been typed of it. The text is the entry found.
  bool is_searching() const { return is_searching_; }
  const std::string& search_text() const { return search_text_; }
  bool search_fails() const { return search_fails_; }

 private:
  Outcome enter();
  Outcome complete();
  void edit(Key::Kind kind);
  void recall(std::size_t index);
  void step_back();
  void step_forward();
  bool search(const Key& key);
  void find_before(std::size_t end);

  const History* history_;
  const Completer* completer_;
  LineBuffer buffer_;
  Entry entry_;
  std::vector<std::string> choices_;

  std::size_t place_ = history_->entries().size();  ///< entry shown; their number: the new one
  std::map<std::size_t, std::string> edited_;       ///< texts edited on the way

  bool is_searching_ = false;
  bool search_fails_ = false;
  std::string search_text_;
  std::size_t place_before_ = 0;  ///< the search began
  std::string text_before_;
};

}  // namespace hyb::app
