#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/ui/entry.h"
#include "app/ui/history.h"
#include "app/ui/keys.h"
#include "app/ui/line_buffer.h"

namespace hyb::app {

/// What a key did, seen from outside.
enum class Outcome : std::uint8_t {
  edited,        ///< text or cursor may have changed
  entered,       ///< entry() is complete
  interrupted,   ///< Ctrl-C; the text is as it was
  end_of_input,  ///< Ctrl-D in an empty text
  choices,       ///< Tab fits several words: choices()
  clear_screen,
  suspend,
};

/// The editor without a terminal: keys in, text and cursor out.
class Editing {
 public:
  /// `words` are what Tab completes at the begin of the text; `draft` is what stands there.
  Editing(const History& history, const std::vector<std::string>& words, std::string draft = {})
      : history_(&history), words_(&words) {
    buffer_.set(std::move(draft));
  }

  Outcome apply(const Key& key);

  const LineBuffer& buffer() const { return buffer_; }
  const Entry& entry() const { return entry_; }
  const std::vector<std::string>& choices() const { return choices_; }

  /// While Ctrl-R searches the history: what has been typed of it. The text is the entry found.
  bool is_searching() const { return is_searching_; }
  const std::string& search_text() const { return search_text_; }

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
  const std::vector<std::string>* words_;
  LineBuffer buffer_;
  Entry entry_;
  std::vector<std::string> choices_;

  std::size_t place_ = history_->entries().size();  ///< entry shown; their number: the new one
  std::map<std::size_t, std::string> edited_;       ///< texts left behind on the way

  bool is_searching_ = false;
  std::string search_text_;
};

}  // namespace hyb::app
