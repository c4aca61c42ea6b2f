#pragma once

#include <random>
#include <string>

#include "app/sessions/conversation.h"

namespace hyb::testing {

inline app::Conversation random_conversation(std::mt19937& random, int turns) {
  app::Conversation conversation;
  conversation.set_system(turns % 2 == 0 ? "" : "Be \"brief\".\n");
  for (int i = 0; i < turns; ++i) {
    const auto said = static_cast<unsigned>(conversation.turns());
    conversation.go_to(static_cast<std::int32_t>(random() % (said + 1)));
    app::Exchange exchange{.message = "q\n" + std::to_string(i),
                           .answer = {},
                           .answer_text = "gr\xc3\xbc\xc3\x9f " + std::to_string(i),
                           .was_interrupted = i % 3 == 0,
                           .lead = {TokenId{static_cast<std::int32_t>(random() % 100)}},
                           .tokens = i * 7};
    if (i % 4 != 1) {
      exchange.answer = {exchange.answer_text, {TokenId{i}, TokenId{0}}};
    }
    conversation.add(std::move(exchange));
    if (i % 5 == 4) conversation.fork("b" + std::to_string(i));
  }
  return conversation;
}

}  // namespace hyb::testing
