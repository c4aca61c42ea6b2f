#include "tests/sim/toy_runner.h"

namespace hyb::sim {

std::string name_of(Bug bug) {
  static const char* const names[] = {"none",
                                      "orders ignored",
                                      "orders after spans",
                                      "orders reversed",
                                      "last order lost",
                                      "copy turned round",
                                      "copy has one row",
                                      "reads write slot",
                                      "writes read slot",
                                      "fresh state not zero",
                                      "chunk forgets state",
                                      "rejected tokens kept",
                                      "page edge off by one",
                                      "neighbour's page table",
                                      "neighbour's state",
                                      "answers swapped",
                                      "draw counter stuck",
                                      "state one span old",
                                      "last page of table stale",
                                      "one accepted too many",
                                      "ring off by one",
                                      "ring not applied",
                                      "ring forgotten",
                                      "draft in state",
                                      "keys of drafts kept",
                                      "draws of drafts alike",
                                      "orders before drafts lost",
                                      "drafting writes back",
                                      "drafting moves state",
                                      "branch in sibling's page",
                                      "loser's ring taken",
                                      "masks ignored",
                                      "masks of drafts alike"};
  return names[static_cast<int>(bug)];
}

}  // namespace hyb::sim
