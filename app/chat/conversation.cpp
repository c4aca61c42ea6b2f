#include "app/chat/conversation.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace hyb::app {

std::vector<Exchange> Conversation::take_last(std::size_t count) {
  const auto first =
      exchanges_.end() - static_cast<std::ptrdiff_t>(std::min(count, exchanges_.size()));
  std::vector<Exchange> taken(std::make_move_iterator(first),
                              std::make_move_iterator(exchanges_.end()));
  exchanges_.erase(first, exchanges_.end());
  return taken;
}

void Conversation::put_back(std::vector<Exchange> exchanges) {
  std::move(exchanges.begin(), exchanges.end(), std::back_inserter(exchanges_));
}

Json Conversation::messages(const std::string& message) const {
  Json all = Json::array();
  const auto say = [&](const char* role, const std::string& text) {
    all.push_back({{"role", role}, {"content", text}});
  };
  if (!system_.empty()) say("system", system_);
  for (const Exchange& exchange : exchanges_) {
    say("user", exchange.message);
    say("assistant", exchange.answer_text);
  }
  say("user", message);
  return all;
}

std::vector<OwnTurn> Conversation::own_turns() const {
  std::vector<OwnTurn> turns;
  for (const Exchange& exchange : exchanges_) turns.push_back(exchange.answer);
  return turns;
}

}  // namespace hyb::app
