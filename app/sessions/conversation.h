#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "app/request/prompt.h"
#include "app/request/template_probe.h"
#include "app/request/thoughts.h"
#include "core/base/json.h"

namespace hyb::app {

/// A message and its answer.
struct Exchange {
  std::string message;
  OwnTurn answer = {};
  std::string answer_text;       ///< as shown; answer.text may be empty, see own_turn()
  bool was_interrupted = false;  ///< the answer is a part of one
  /// The ids from the end of the answer before to the start of this one; empty: not known.
  std::vector<TokenId> lead = {};
  std::int32_t tokens = 0;   ///< of the prompt and the answer when it was given
  std::string opening = {};  ///< of a thought, that the prompt had begun: see AnswerStart
  Think think = {};          ///< what the prompt was made with
};

/// A tree of turns, of which none is lost until clear(), and its branches. Turns are numbered from
/// 1 in the order in which they were given; 0 is the beginning. Holds text and ids only; nothing
/// here depends on a model.
class Conversation {
 public:
  struct Turn {
    std::int32_t parent;  ///< the turn that it answers to, a smaller number
    Exchange exchange;
  };

  /// "" for none.
  void set_system(std::string text) { system_ = std::move(text); }
  const std::string& system() const { return system_; }

  std::int32_t turns() const { return static_cast<std::int32_t>(turns_.size()); }
  const Turn& turn(std::int32_t number) const;

  /// The turn that the next message follows.
  std::int32_t here() const { return branches_.at(branch_); }

  /// The turns from the first one to `turn`; none for 0.
  std::vector<std::int32_t> path(std::int32_t turn) const;

  /// The turns that no other follows, ascending: the paths to them pass every turn.
  std::vector<std::int32_t> ends() const;

  /// The turn `count` turns before here; 0 when there are no more.
  std::int32_t before(std::int32_t count) const;

  /// Adds a turn after here, which moves there. Returns its number.
  std::int32_t add(Exchange exchange);

  /// Adds a turn after any other (to rebuild what was saved); here stays.
  std::int32_t add_after(std::int32_t parent, Exchange exchange);

  /// Moves the branch to any turn, or to 0.
  void go_to(std::int32_t turn);

  const std::string& branch() const { return branch_; }
  const std::map<std::string, std::int32_t, std::less<>>& branches() const { return branches_; }

  /// Starts a branch here and moves onto it; the one so far stays where it is. False: the name is
  /// taken.
  bool fork(const std::string& name);

  /// Moves onto another branch. False: there is none of the name.
  bool switch_to(std::string_view name);

  /// Makes the branches be these; every turn that they name exists, `branch` is one of them.
  void set_branches(std::map<std::string, std::int32_t, std::less<>> branches, std::string branch);

  /// Forgets all turns and branches; the system prompt stays.
  void clear();

  /// For the template: system, the exchanges up to `turn`, and `message` that is to be answered.
  /// Past answers are as assistant_message() makes them.
  Json messages(std::int32_t turn, const std::string& message,
                const PastThoughts& thoughts = {}) const;

  /// One per answer in messages().
  std::vector<OwnTurn> own_turns(std::int32_t turn) const;

 private:
  std::string system_;
  std::vector<Turn> turns_;
  std::map<std::string, std::int32_t, std::less<>> branches_ = {{"main", 0}};
  std::string branch_ = "main";
};

}  // namespace hyb::app
