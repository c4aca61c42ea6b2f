#include "models/card_link.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "core/base/error.h"

namespace hyb::models {
namespace {

class LinkCopies final : public UnitCopies {
 public:
  explicit LinkCopies(std::unique_ptr<kernels::PendingCardCopies> copies)
      : copies_(std::move(copies)) {}
  bool is_done() override { return copies_->is_done(); }
  void wait() override { copies_->wait(); }

 private:
  std::unique_ptr<kernels::PendingCardCopies> copies_;
};

/// Adds the last copy to the one from `first` on where it goes on from that: fewer copies, each
/// longer.
void add(std::vector<kernels::CardCopy>& copies, std::size_t first, std::span<const std::byte> from,
         std::span<std::byte> to) {
  require(from.size() == to.size(), "card link: units of one size");
  if (copies.size() > first) {
    kernels::CardCopy& last = copies.back();
    const std::size_t bytes = last.from.size();
    if (last.from.data() + bytes == from.data() && last.to + bytes == to.data()) {
      last.from = {last.from.data(), bytes + from.size()};
      return;
    }
  }
  copies.push_back({.from = from, .to = to.data()});
}

/// Layer by layer, so that pages that follow each other in both memories are one copy a layer, and
/// each copy stays within one range of addresses.
std::vector<kernels::CardCopy> copies_of(const Store& from, const Store& to,
                                         std::span<const UnitMove> moves) {
  std::size_t parts = 0;
  for (const UnitMove& move : moves) parts = std::max(parts, from.parts(move.view));
  std::vector<kernels::CardCopy> copies;
  for (std::size_t part = 0; part < parts; ++part) {
    std::size_t first = copies.size();
    ViewId view = no_view;
    for (const UnitMove& move : moves) {
      if (part >= from.parts(move.view)) continue;
      if (std::exchange(view, move.view) != move.view) first = copies.size();
      add(copies, first, from.part(move.view, move.from, part), to.part(move.view, move.to, part));
    }
  }
  return copies;
}

}  // namespace

CardLink::CardLink(ModelRunner& prompts, ModelRunner& answers, bool are_peers)
    : prompts_(prompts.store()),
      answers_(answers.store()),
      to_answers_(kernels::make_card_copies(prompts.queue(), answers.queue(), are_peers)),
      to_prompts_(kernels::make_card_copies(answers.queue(), prompts.queue(), are_peers)) {}

std::unique_ptr<UnitCopies> CardLink::start(Direction direction, std::vector<UnitMove> moves) {
  const bool is_to_answers = direction == Direction::to_answers;
  const std::vector<kernels::CardCopy> copies =
      is_to_answers ? copies_of(prompts_, answers_, moves) : copies_of(answers_, prompts_, moves);
  return std::make_unique<LinkCopies>((is_to_answers ? to_answers_ : to_prompts_)->start(copies));
}

}  // namespace hyb::models
