#include "app/ui/editing.h"

#include <algorithm>

#include "app/ui/text_width.h"

namespace hyb::app {

using Kind = Key::Kind;

Outcome Editing::apply(const Key& key) {
  if (is_searching_ && search(key)) return Outcome::edited;
  switch (key.kind) {
    case Kind::enter:
      return enter();
    case Kind::tab:
      return complete();
    case Kind::interrupt:
      return Outcome::interrupted;
    case Kind::clear_screen:
      return Outcome::clear_screen;
    case Kind::suspend:
      return Outcome::suspend;
    case Kind::end_of_input:
      if (buffer_.empty()) return Outcome::end_of_input;
      buffer_.erase_right();
      break;
    case Kind::text:
    case Kind::paste:
      buffer_.insert(key.text);
      break;
    case Kind::search:
      is_searching_ = true;
      search_text_.clear();
      break;
    default:
      edit(key.kind);
  }
  return Outcome::edited;
}

Outcome Editing::enter() {
  if (auto finished = finish_entry(buffer_.text())) {
    entry_ = std::move(*finished);
    return Outcome::entered;
  }
  buffer_.set(continued(buffer_.text()));
  return Outcome::edited;
}

void Editing::edit(Kind kind) {
  switch (kind) {
    case Kind::line_break:
      return buffer_.insert("\n");
    case Kind::left:
      return buffer_.move_left();
    case Kind::right:
      return buffer_.move_right();
    case Kind::word_left:
      return buffer_.move_word_left();
    case Kind::word_right:
      return buffer_.move_word_right();
    case Kind::home:
      return buffer_.move_home();
    case Kind::end:
      return buffer_.move_end();
    case Kind::erase_left:
      return buffer_.erase_left();
    case Kind::erase_right:
      return buffer_.erase_right();
    case Kind::kill_to_end:
      return buffer_.kill_to_end();
    case Kind::kill_to_begin:
      return buffer_.kill_to_begin();
    case Kind::kill_word_left:
      return buffer_.kill_word_left();
    case Kind::kill_word_right:
      return buffer_.kill_word_right();
    case Kind::yank:
      return buffer_.yank();
    case Kind::up:
      if (!buffer_.move_up()) step_back();
      return;
    case Kind::down:
      if (!buffer_.move_down()) step_forward();
      return;
    case Kind::history_back:
      return step_back();
    case Kind::history_forward:
      return step_forward();
    default:
      return;
  }
}

void Editing::recall(std::size_t index) {
  edited_[place_] = buffer_.text();
  place_ = index;
  if (const auto found = edited_.find(index); found != edited_.end()) {
    buffer_.set(found->second);
  } else {
    buffer_.set(history_->entries()[index]);
  }
}

void Editing::step_back() {
  if (place_ > 0) recall(place_ - 1);
}

void Editing::step_forward() {
  if (place_ < history_->entries().size()) recall(place_ + 1);
}

void Editing::find_before(std::size_t end) {
  for (std::size_t i = std::min(end, history_->entries().size()); i > 0; --i) {
    if (history_->entries()[i - 1].find(search_text_) == std::string::npos) continue;
    if (place_ != i - 1) recall(i - 1);
    return;
  }
}

/// True: the key belonged to the search. Any other key ends it and means what it always means.
bool Editing::search(const Key& key) {
  switch (key.kind) {
    case Kind::text:
      search_text_ += key.text;
      find_before(place_ + 1);
      return true;
    case Kind::erase_left:
      if (!search_text_.empty()) {
        search_text_.erase(previous_grapheme(search_text_, search_text_.size()));
      }
      return true;
    case Kind::search:
      find_before(place_);
      return true;
    default:
      is_searching_ = false;
      return key.kind == Kind::interrupt;
  }
}

Outcome Editing::complete() {
  const std::string typed = buffer_.text().substr(0, buffer_.cursor());
  choices_.clear();
  if (!typed.empty()) {
    for (const std::string& word : *words_) {
      if (word.starts_with(typed)) choices_.push_back(word);
    }
  }
  if (choices_.empty()) return Outcome::edited;
  std::string common = choices_.front();
  for (const std::string& choice : choices_) {
    const auto differs = std::mismatch(common.begin(), common.end(), choice.begin(), choice.end());
    common.erase(differs.first, common.end());
  }
  if (choices_.size() == 1) common += ' ';
  if (common.size() == typed.size()) return Outcome::choices;
  buffer_.insert(common.substr(typed.size()));
  return Outcome::edited;
}

}  // namespace hyb::app
