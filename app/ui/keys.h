#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/unicode.h"

namespace hyb::app {

struct Key {
  enum class Kind : std::uint8_t {
    text,   ///< characters to insert
    paste,  ///< as text, in one piece; line breaks in it are "\n"
    enter,
    line_break,  ///< Ctrl-J, Alt-Enter, Shift-Enter: a new line in the same entry
    tab,
    left,
    right,
    up,
    down,
    home,
    end,
    word_left,
    word_right,
    erase_left,
    erase_right,
    kill_to_end,
    kill_to_begin,
    kill_word_left,
    kill_word_right,
    yank,
    history_back,
    history_forward,
    search,        ///< Ctrl-R
    clear_screen,  ///< Ctrl-L
    interrupt,     ///< Ctrl-C
    end_of_input,  ///< Ctrl-D
    suspend,       ///< Ctrl-Z
    abort,         ///< Ctrl-G
    editor,        ///< Ctrl-X Ctrl-E
  };
  Kind kind;
  std::string text = {};
};

/// Turns the bytes of a terminal in raw mode into keys, however they are cut into reads. Sequences
/// that mean nothing here are dropped.
class KeyDecoder {
 public:
  void push(std::string_view bytes, std::vector<Key>& keys);

  /// True if an escape sequence has begun that is not a paste: when nothing follows soon, give_up()
  /// makes it the Escape key, which does nothing.
  bool is_waiting() const {
    return phase_ != Phase::plain && phase_ != Phase::paste && phase_ != Phase::control_x;
  }
  void give_up() { phase_ = Phase::plain; }

 private:
  enum class Phase : std::uint8_t { plain, escape, parameters, single_shift, paste, control_x };

  void push_byte(char byte, std::vector<Key>& keys);
  void push_plain(char byte, std::vector<Key>& keys);
  void push_escaped(char byte, std::vector<Key>& keys);
  void end_sequence(char final, std::vector<Key>& keys);
  std::size_t push_paste(std::string_view bytes, std::vector<Key>& keys);

  Phase phase_ = Phase::plain;
  Utf8Stream characters_;
  std::string parameters_;
  std::string paste_;
};

}  // namespace hyb::app
