#include "app/sessions/conversation.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "app/request/thoughts.h"
#include "core/base/error.h"

namespace hyb::app {

const Conversation::Turn& Conversation::turn(std::int32_t number) const {
  require(number >= 1 && number <= turns(), "conversation: turns are numbered from 1");
  return turns_[static_cast<std::size_t>(number - 1)];
}

std::vector<std::int32_t> Conversation::path(std::int32_t turn) const {
  std::vector<std::int32_t> path;
  for (; turn != 0; turn = this->turn(turn).parent) path.push_back(turn);
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<std::int32_t> Conversation::ends() const {
  std::vector<bool> is_followed(turns_.size() + 1);
  for (const Turn& turn : turns_) is_followed[static_cast<std::size_t>(turn.parent)] = true;
  std::vector<std::int32_t> ends;
  for (std::int32_t turn = 1; turn <= turns(); ++turn) {
    if (!is_followed[static_cast<std::size_t>(turn)]) ends.push_back(turn);
  }
  return ends;
}

std::int32_t Conversation::before(std::int32_t count) const {
  std::int32_t turn = here();
  for (; count > 0 && turn != 0; --count) turn = this->turn(turn).parent;
  return turn;
}

std::int32_t Conversation::add(Exchange exchange) {
  const std::int32_t number = add_after(here(), std::move(exchange));
  go_to(number);
  return number;
}

std::int32_t Conversation::add_after(std::int32_t parent, Exchange exchange) {
  require(parent >= 0 && parent <= turns(), "conversation: a turn must follow an existing one");
  turns_.push_back({.parent = parent, .exchange = std::move(exchange)});
  return turns();
}

void Conversation::go_to(std::int32_t turn) {
  require(turn >= 0 && turn <= turns(), "conversation: no such turn");
  branches_[branch_] = turn;
}

bool Conversation::fork(const std::string& name) {
  const std::int32_t turn = here();
  if (!branches_.emplace(name, turn).second) return false;
  branch_ = name;
  return true;
}

bool Conversation::switch_to(std::string_view name) {
  const auto found = branches_.find(name);
  if (found == branches_.end()) return false;
  branch_ = found->first;
  return true;
}

void Conversation::set_branches(std::map<std::string, std::int32_t, std::less<>> branches,
                                std::string branch) {
  for (const auto& [name, turn] : branches) {
    require(turn >= 0 && turn <= turns(), "conversation: a branch must end at an existing turn");
  }
  require(branches.contains(branch), "conversation: the current branch must exist");
  branches_ = std::move(branches);
  branch_ = std::move(branch);
}

void Conversation::clear() {
  turns_.clear();
  branches_ = {{"main", 0}};
  branch_ = "main";
}

Json Conversation::messages(std::int32_t turn, const std::string& message,
                            const PastThoughts& thoughts) const {
  Json all = Json::array();
  const auto say = [&](const char* role, const std::string& text) {
    all.push_back({{"role", role}, {"content", text}});
  };
  if (!system_.empty()) say("system", system_);
  for (const std::int32_t number : path(turn)) {
    const Exchange& exchange = this->turn(number).exchange;
    say("user", exchange.message);
    const AnswerStart start = {
        .may_think = true, .opening = exchange.opening, .markers = thoughts.markers};
    all.push_back(assistant_message(exchange.answer_text, start, thoughts.takes_reasoning));
  }
  say("user", message);
  return all;
}

std::vector<OwnTurn> Conversation::own_turns(std::int32_t turn) const {
  std::vector<OwnTurn> turns;
  for (const std::int32_t number : path(turn)) {
    const Exchange& exchange = this->turn(number).exchange;
    turns.push_back(exchange.answer);
    turns.back().opening = exchange.opening;
  }
  return turns;
}

}  // namespace hyb::app
