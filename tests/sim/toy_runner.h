#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/engine/runner.h"
#include "tests/sim/toy_model.h"

namespace hyb::sim {

/// A rule of the simulation was broken.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Thrown by a step that is set to fail.
struct StepFailure : std::runtime_error {
  StepFailure() : std::runtime_error("the step failed, as planned") {}
};

/// Possible bugs of a runner, or of the bookkeeping that it follows; the simulation has to find
/// each.
enum class Bug {
  none,
  orders_ignored,             ///< a partial page is not copied
  orders_after_spans,         ///< copied too late
  orders_reversed,            ///< copied in the wrong order
  last_order_lost,            ///< all but the last are carried out
  copy_turned_round,          ///< from and to exchanged
  copy_has_one_row,           ///< the other rows of a page are not copied
  reads_write_slot,           ///< the first step after a checkpoint or resume reads the wrong slot
  writes_read_slot,           ///< a published snapshot is written
  fresh_state_not_zero,       ///< no_slot reads what the slot's last user left
  chunk_forgets_state,        ///< only a span at position 0 carries state on
  rejected_tokens_kept,       ///< the state is that of the span's end, whatever was kept
  page_edge_off_by_one,       ///< the first row of a page is written to the page before
  neighbours_page_table,      ///< attention reads through the first span's table
  neighbours_state,           ///< every span starts from the first span's state
  answers_swapped,            ///< the rows of two spans are exchanged
  draw_counter_stuck,         ///< every draw is the first
  state_one_span_old,         ///< the last span is not in the state that is read
  last_page_of_table_stale,   ///< the newest page is not seen, the one before is used again
  one_accepted_too_many,      ///< one entry of a ring too many is applied
  ring_off_by_one,            ///< entries are read from the second on
  ring_not_applied,           ///< before a snapshot is taken
  ring_forgotten,             ///< by a span without drafts
  draft_in_state,             ///< the state is that after the first draft
  keys_of_drafts_kept,        ///< what is drawn instead of a draft does not overwrite its key
  draws_of_drafts_alike,      ///< the draws after drafts have the counter of the first
  orders_before_drafts_lost,  ///< what the model drafts in is not there yet
  drafting_writes_back,       ///< what the model drafts overwrites the position before
  drafting_moves_state,       ///< the state is that after the token that has not run
  branch_in_siblings_page,    ///< a branch goes on in the pages of the sequence's own drafts
  losers_ring_taken,          ///< the rings of a branch and of the sequence's own drafts exchanged
  masks_ignored,              ///< but those of the first tokens
  masks_of_drafts_alike,      ///< what follows a draft has the mask of the first
};

std::string name_of(Bug bug);

/// A Runner that keeps toy keys in the pages of one full group and toy states in slots, reads them
/// only through the page tables and slots of the step, and checks every rule of the seam. What a
/// superblock held is lost when it changes its owner. Without rings it may hold more
/// than was kept: a slot remembers the states within its last span, and the position of the next
/// span says how many tokens there were. With rings a slot holds the state that a span leaves and
/// no other, and rings hold what drafts feed to the recurrent half.
class ToyRunner : public Runner {
 public:
  ToyRunner(const Capacity& capacity, const ToyModel& model, Bug bug = Bug::none,
            bool checks_rules = true);

  Capacity capacity() const override { return capacity_; }
  StepResult run(const Step& step) override;
  /// Draws as steps do, but for some that are wrong, and leaves rubbish where keys of drafts go.
  bool can_draft() const override { return true; }
  std::vector<std::vector<SampledToken>> draft(const Step& step) override;
  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override;
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override;

  /// A unit of another toy of the same model, as a link copies it.
  void receive(const ToyRunner& other, ViewId view, std::int32_t from, std::int32_t to);

  /// Called before each step, with it.
  std::function<void(const Step&)> on_step = [](const Step&) {};
  /// Called before each step: true makes it fail, after it has written rubbish into some of what it
  /// was to write.
  std::function<bool()> fails = [] { return false; };

  std::int64_t steps = 0, orders = 0, spans_max = 0, owner_changes = 0, packed = 0;
  std::int64_t advanced = 0;  ///< states, by order
  std::int64_t drafted = 0;   ///< tokens

 protected:
  struct Slot {
    bool written = false;
    std::int32_t position = 0;          ///< of states.front()
    std::vector<std::uint64_t> states;  ///< before the last span and after each of its tokens
  };

  void spoil(const Step& step);
  Slot& slot_at(SlotId slot) { return slots_.at(static_cast<std::size_t>(index(slot))); }

 private:
  struct Row {
    bool written = false;
    std::int32_t position = -1;
    TokenId token{};
    std::uint64_t key = 0;
  };
  struct Entry {
    TokenId token{};
    std::uint64_t attended = 0;
    std::int32_t position = -1;
  };
  using Ring = std::vector<Entry>;

  void rule(bool holds, const std::string& text) const;
  void check(const Step& step) const;
  void check(const Span& span) const;
  void check(const Span& span, const SampleRow& row) const;
  void carry_out(std::vector<Order> orders);
  void carry_out(const Order& order);
  void carry_out(const UnitCopy& copy);
  void carry_out(const AdvanceSlot& order);
  void change_owner(const ChangeOwner& change);
  void check_owner(ViewId view, std::int32_t unit) const;
  void run_span(const Step& step, const Span& span, StepResult& result);
  void fill_rings(const Step& step);
  void check_branch(const Step& step, const Span& span) const;
  std::uint64_t state_before(const Span& span) const;
  std::uint64_t applied(std::uint64_t state, const Ring& ring, std::int32_t entries) const;
  bool has_rings() const { return capacity_.memory.rings.per_superblock > 0; }
  Ring& ring_at(RingId ring) { return rings_.at(static_cast<std::size_t>(index(ring))); }
  const Ring& ring_at(RingId ring) const {
    return rings_.at(static_cast<std::size_t>(index(ring)));
  }
  std::int32_t page_tokens() const { return capacity_.memory.page_tokens; }
  static const PageTable& pages_of(const Span& span) { return span.tables[0]; }
  Row& row_at(const Span& span, std::int32_t position);
  const Slot& slot_at(SlotId slot) const {
    return slots_.at(static_cast<std::size_t>(index(slot)));
  }

  Capacity capacity_;
  ToyModel model_;
  Bug bug_;
  bool checks_rules_;
  std::vector<Row> rows_;
  std::vector<Slot> slots_;
  std::vector<Slot> packed_;
  std::vector<Ring> rings_;
  std::vector<std::pair<RingId, Ring>> filled_;  ///< by the spans of a step; all read before
  std::vector<ViewId> owners_;                   ///< empty: fixed
};

/// By its rows: no other span with drafts lacks some.
bool is_branch(const Span& span);

/// For every span of a step the first of its sequence's: a span that goes on where the one before
/// it ends belongs to the same.
std::vector<std::size_t> first_spans(const Step& step);

/// What one span writes no other span reads or writes, but for those of its own sequence. Returns
/// the rule that the step breaks; null: none.
const char* broken_rule(const Step& step, std::int32_t page_tokens);

}  // namespace hyb::sim
