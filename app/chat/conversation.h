#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/prompt.h"
#include "core/base/json.h"

namespace hyb::app {

/// A message and its answer.
struct Exchange {
  std::string message;
  OwnTurn answer;
  std::string answer_text;       ///< as shown; answer.text may be empty, see own_turn()
  bool was_interrupted = false;  ///< the answer is a part of one
};

/// What has been said. Holds text and ids only; nothing here depends on a model.
class Conversation {
 public:
  /// "" for none.
  void set_system(std::string text) { system_ = std::move(text); }
  const std::string& system() const { return system_; }

  const std::vector<Exchange>& exchanges() const { return exchanges_; }
  void add(Exchange exchange) { exchanges_.push_back(std::move(exchange)); }

  /// Takes the last `count` exchanges away, oldest first; fewer when there are no more.
  std::vector<Exchange> take_last(std::size_t count);

  /// Puts back what take_last() took.
  void put_back(std::vector<Exchange> exchanges);

  /// Forgets all exchanges; the system prompt stays.
  void clear() { exchanges_.clear(); }

  /// For the template: system, all exchanges, and `message` that is to be answered.
  Json messages(const std::string& message) const;

  /// One per answer in messages().
  std::vector<OwnTurn> own_turns() const;

 private:
  std::string system_;
  std::vector<Exchange> exchanges_;
};

}  // namespace hyb::app
