#pragma once

#include <memory>
#include <vector>

#include "core/memory/link/unit_link.h"
#include "kernels/card_copies.h"
#include "models/runner.h"

namespace hyb::models {

/// The way between the pages and slots of two runners of one model on two cards.
class CardLink final : public UnitLink {
 public:
  /// The runners outlive this. Throws as make_card_copies.
  CardLink(ModelRunner& prompts, ModelRunner& answers, bool are_peers);

  std::unique_ptr<UnitCopies> start(Direction direction, std::vector<UnitMove> moves) override;

 private:
  const Store &prompts_, &answers_;
  std::unique_ptr<kernels::CardCopies> to_answers_, to_prompts_;
};

}  // namespace hyb::models
