#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/ui/editing.h"
#include "app/ui/keys.h"
#include "app/ui/terminal.h"

namespace hyb::app {

struct InputEvent {
  enum class Kind : std::uint8_t {
    entered,      ///< entry is what was entered
    interrupted,  ///< Ctrl-C with nothing entered
    ended,        ///< end of input, or a signal to stop
  };
  Kind kind;
  Entry entry = {};
};

/// A request for an entry. An editor obeys all of it, input by plain lines only `work`.
struct InputRequest {
  std::string prompt = "> ";
  std::string draft = {};  ///< the initial text
  /// Work for the time in which a person types or does nothing, a small piece a call: an entry,
  /// with plain lines a key, waits for the piece that runs. It may be done on another thread.
  /// False: nothing is left to do.
  std::function<bool()> work = {};
};

/// Source of a person's or a script's entries.
class Input {
 public:
  virtual ~Input() = default;

  /// Waits for the next one.
  virtual InputEvent read(const InputRequest& request) = 0;
};

struct ViewOptions {
  std::string_view prompt;        ///< before the first line, "> "
  std::string_view continuation;  ///< before every other line, as wide as the prompt
  int columns = 80;
  int rows_max = 24;
};

/// An edited text as rows of a terminal.
struct View {
  std::vector<std::string> rows;  ///< each at most `columns` wide, harmless to a terminal
  int cursor_row = 0;
  int cursor_column = 0;
};

/// Lays out the part of `text` around the cursor (a byte offset) that fits into the rows, in time
/// that depends on the rows and not on the text. Control characters show as ^X, tabs as four
/// spaces; a row "..." says that there is more above or below.
View lay_out(std::string_view text, std::size_t cursor, const ViewOptions& options);

struct LineEditorOptions {
  std::string continuation = ". ";
  bool has_colour = false;
  Completer complete = {};
  std::string editor = {};  ///< for Ctrl-X Ctrl-E, as a shell takes it; empty: there is none
};

/// An editor for entries of one or more lines, on a terminal that can move its cursor (both stdin
/// and stdout). Work is done on a thread of its own while it waits. Keys pressed before it asks are
/// kept for the next read().
class LineEditor : public Input {
 public:
  LineEditor(History history, LineEditorOptions options)
      : history_(std::move(history)), options_(std::move(options)) {}

  InputEvent read(const InputRequest& request) override;

 private:
  enum class Wait : std::uint8_t { keys, nothing, ended };

  InputEvent edit(RawMode& mode);
  Wait wait_for_keys(RawMode& mode);
  void draw(const Editing& editing);
  void finish(const Editing& editing);
  void show_choices(const Editing& editing);
  void edit_elsewhere(Editing& editing, RawMode& mode);
  View view_of(const Editing& editing, std::size_t cursor) const;
  std::string to_first_row() const;
  std::string painted(const View& view) const;

  History history_;
  LineEditorOptions options_;
  InputRequest asking_;
  KeyDecoder decoder_;
  std::vector<Key> decoded_;
  std::deque<Key> keys_;
  View drawn_;  ///< what is on the screen, and where its cursor is
  int changes_seen_ = 0;
};

/// Lines of stdin without an editor: from a pipe or file each line is an entry as it is; a
/// person at a simple terminal sees a prompt on stderr and may enter several lines as one.
class PlainLines : public Input {
 public:
  explicit PlainLines(bool is_person) : is_person_(is_person) {}
  /// Throws Error(model) for a line of more than line_bytes_max.
  InputEvent read(const InputRequest& request) override;

  static constexpr std::size_t line_bytes_max = std::size_t{64} << 20;

 private:
  std::optional<std::string> next_line(const InputRequest& request);

  bool is_person_;
  bool has_ended_ = false;
  std::string pending_;       ///< read and not yet given out
  std::size_t searched_ = 0;  ///< of pending_, has no line break
};

}  // namespace hyb::app
