#pragma once

#include <deque>
#include <string>
#include <vector>

#include "app/ui/editing.h"
#include "app/ui/history.h"
#include "app/ui/input.h"
#include "app/ui/keys.h"
#include "app/ui/line_view.h"
#include "app/ui/terminal.h"

namespace hyb::app {

struct LineEditorOptions {
  std::string continuation = ". ";
  bool has_colour = false;
  std::vector<std::string> words;  ///< what Tab completes at the begin of an entry
};

/// An editor for entries of one or more lines, on a terminal that can move its cursor (both stdin
/// and stdout). Work is done on a thread of its own meanwhile. Keys pressed before it asks are kept
/// for the next read().
class LineEditor : public Input {
 public:
  LineEditor(History history, LineEditorOptions options)
      : history_(std::move(history)), options_(std::move(options)) {}

  InputEvent read(const Asking& asking) override;

 private:
  enum class Wait : std::uint8_t { keys, nothing, ended };

  InputEvent edit(RawMode& mode);
  Wait wait_for_keys(RawMode& mode);
  void draw(const Editing& editing);
  void finish(const Editing& editing);
  void show_choices(const Editing& editing);
  View view_of(const Editing& editing, std::size_t cursor) const;
  std::string to_first_row() const;
  std::string painted(const View& view) const;

  History history_;
  LineEditorOptions options_;
  Asking asking_;
  KeyDecoder decoder_;
  std::vector<Key> decoded_;
  std::deque<Key> keys_;
  View drawn_;  ///< what stands on the screen, and where its cursor is
  int changes_seen_ = 0;
};

}  // namespace hyb::app
