#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hyb::app {

/// Text being edited, and where the cursor stands in it. The text is well-formed UTF-8 and may have
/// several lines; the cursor is a byte offset and never stands inside a grapheme cluster by its own
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
  void move_home();  ///< to the begin of the line; from there, to the begin of the line above
  void move_end();   ///< to the end of the line; from there, to the end of the line below
  bool move_up();    ///< false: already in the first line
  bool move_down();  ///< false: already in the last line

  void erase_left();
  void erase_right();

  // What these take away is kept for yank().
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

}  // namespace hyb::app
