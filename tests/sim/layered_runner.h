#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/base/sampling.h"
#include "core/engine/runner.h"
#include "core/memory/pool/layout.h"
#include "tests/sim/random.h"
#include "tests/sim/toy_model.h"
#include "tests/sim/toy_runner.h"
#include "tests/support/held_copies.h"
#include "tests/support/held_writes.h"

namespace hyb::sim {

/// The first positions and a window: a kind that only this test knows.
class SinkWindow final : public MemoryKind {
 public:
  SinkWindow(std::int32_t sinks, std::int32_t window) : sinks_(sinks), window_(window) {}
  std::string_view name() const override { return "sink"; }
  bool needs(PositionRange positions, std::int32_t length) const override;

 private:
  std::int32_t sinks_, window_;
};

enum class LayerKind : std::uint8_t { full, window, chunked, sink, shared, recurrent };

struct LayerSpec {
  LayerKind kind;
  std::int32_t reach = 0;   ///< window or chunk
  std::size_t keys_of = 0;  ///< the layer whose keys are read: its own, or with `shared` another's
};

/// What the recurrent layer carries from token to token: a number, and the last inputs of its
/// convolution.
struct Recurrence {
  std::uint64_t number = 0;
  std::array<std::uint64_t, 3> window{};
  bool operator==(const Recurrence&) const = default;
};

/// A model of layers that read the keys of earlier positions, each as its kind allows, and of one
/// recurrent layer: what it says at a position depends on every earlier token, on their order and
/// on where they are kept. Layers of one kind and reach form a page group.
class LayeredModel {
 public:
  explicit LayeredModel(Random& random);

  std::span<const LayerSpec> layers() const { return layers_; }
  bool is_recurrent() const { return is_recurrent_; }
  /// Of layers with keys of their own; the ordinal of a layer within its group.
  std::size_t groups() const { return group_kinds_.size(); }
  const MemoryKind& kind_of(std::size_t group) const { return *group_kinds_[group]; }
  std::size_t group_of(std::size_t layer) const { return group_of_[layer]; }
  std::size_t ordinal_of(std::size_t layer) const { return ordinal_of_[layer]; }

  /// First position that a layer reads at `position`, from the definition of its kind; sinks are
  /// read besides.
  std::int32_t first_read(const LayerSpec& layer, std::int32_t position) const;
  static std::int32_t sinks_of(const LayerSpec& layer) {
    return layer.kind == LayerKind::sink ? 2 : 0;
  }

  /// Runs one token. key(layer, position) are the keys before this one; store(layer, key) takes the
  /// position's own, before it is read. Returns the output.
  template <typename Key, typename Store>
  std::uint64_t run(TokenId token, std::int32_t position, Recurrence& recurrence, Key&& key,
                    Store&& store) const;

  /// Probability of nothing: every draw is finite. Greedy when the temperature is 0.
  SampledToken draw(std::uint64_t output, const SamplingParams& params, std::uint64_t count) const {
    return sim::draw(draws_, output, params, count);
  }
  std::int32_t vocab() const { return draws_.vocab; }

 private:
  void add(Random& random, LayerKind kind);

  std::vector<LayerSpec> layers_;
  std::vector<std::unique_ptr<MemoryKind>> group_kinds_;
  std::vector<std::size_t> group_of_, ordinal_of_;
  bool is_recurrent_ = false;
  ToyModel draws_;
};

inline std::uint64_t advance(Recurrence& recurrence, std::uint64_t input) {
  auto& window = recurrence.window;
  const std::uint64_t mixed = mix(mix(window[0], window[1]), mix(window[2], input));
  window = {window[1], window[2], input};
  recurrence.number = mix(recurrence.number, mixed);
  return recurrence.number;
}

template <typename Key, typename Store>
std::uint64_t LayeredModel::run(TokenId token, std::int32_t position, Recurrence& recurrence,
                                Key&& key, Store&& store) const {
  std::uint64_t x = mix(static_cast<std::uint64_t>(index(token)) + 1, 3);
  for (std::size_t at = 0; at < layers_.size(); ++at) {
    const LayerSpec& layer = layers_[at];
    if (layer.kind == LayerKind::recurrent) {
      x = mix(x, advance(recurrence, x));
      continue;
    }
    if (layer.keys_of == at) store(at, mix(x, at + 17));
    const LayerSpec& owner = layers_[layer.keys_of];
    const std::int32_t first = first_read(owner, position);
    std::uint64_t read = 1;
    for (std::int32_t p = 0; p < std::min(first, sinks_of(owner)); ++p)
      read = mix(read, key(layer.keys_of, p));
    for (std::int32_t p = first; p <= position; ++p) read = mix(read, key(layer.keys_of, p));
    x = mix(x, read);
  }
  return x;
}

/// The meaning of the model: one sequence, plain vectors, no pages, slots, chunks or steps.
class NaiveLayered {
 public:
  explicit NaiveLayered(const LayeredModel& model) : model_(&model), keys_(model.layers().size()) {}
  void push(TokenId token);
  std::uint64_t output() const { return output_; }

 private:
  const LayeredModel* model_;
  std::vector<std::vector<std::uint64_t>> keys_;
  Recurrence recurrence_;
  std::int32_t position_ = 0;
  std::uint64_t output_ = 0;
};

/// Bugs of a runner, or of the bookkeeping that it follows, that only superblocks, several kinds
/// and snapshots make possible.
enum class Fault {
  none,
  partial_page_shared,       ///< the copy of a partly filled page is another name for it
  slot_not_cleared,          ///< no_slot reads what the slot's last user left
  wrong_chunk_published,     ///< a slot that was read from elsewhere gets the state of the span's
                             ///< begin
  conv_window_cut_short,     ///< snapshots lose the oldest input of the convolution
  rejected_token_kept,       ///< the state is that of the span's end, whatever was kept
  written_after_publishing,  ///< a span writes its read slot too
  owner_changed_too_early,   ///< changes of owner are carried out before the copies
  copies_of_one_group_lost,  ///< pages of the second group stay where they were
  buffer_reused_too_early,   ///< a disk writes what its buffer holds one write later
  packed_without_pages,      ///< what is written back to pages is lost, what goes to slots is not
  piece_starts_anew,         ///< a span that goes on reads what its own slot held before
  unit_copied_too_late,      ///< a copy beside the steps reads what later steps left in its unit
  unit_used_too_early,       ///< a unit is used before what is written beside the steps is there
};

const char* name_of(Fault fault);

/// A Runner of a LayeredModel: keys in the pages of every group, recurrence in slots and packed
/// snapshots, all read through the tables of the step alone. With `checks_rules` it knows what each
/// page, slot and superblock holds and throws Violation when a step touches what it must not.
class LayeredRunner : public Runner {
 public:
  LayeredRunner(const Capacity& capacity, const LayeredModel& model, Fault fault = Fault::none,
                bool checks_rules = true);

  Capacity capacity() const override { return capacity_; }
  StepResult run(const Step& step) override;
  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override;
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override;
  std::unique_ptr<PendingBytes> start_read(ViewId view, std::int32_t unit) override {
    return copies.start(*this, view, unit, capacity_.memory.unit_bytes(view));
  }

  bool can_stage_writes() const override { return writes.room > 0; }
  std::unique_ptr<StagedWrite> stage_write(std::size_t bytes) override {
    return writes.take(*this, bytes);
  }

  testing::HeldCopies copies;  ///< beside the steps; none by default
  testing::HeldWrites writes;  ///< the way back; none by default

  /// Bytes of a page of a group and of a slot, for layouts of this runner.
  static std::size_t page_bytes(const LayeredModel& model, std::size_t group,
                                std::int32_t page_tokens);
  static std::size_t slot_bytes();

  /// Called before each step, with it.
  std::function<void(const Step&)> on_step = [](const Step&) {};
  /// Called before each step and at each change of owner: true makes the step fail there.
  std::function<bool()> fails = [] { return false; };
  /// The same of read().
  std::function<bool()> read_fails = [] { return false; };
  /// Called before a superblock gets memory; true: the device has some.
  std::function<bool()> has_memory = [] { return true; };

  /// From now on a superblock has memory only where it was committed, until it is released.
  void start_without_memory() { backed_.assign(owners_.size(), false); }
  bool commit(SuperblockId superblock, bool may_create) override;
  std::int64_t superblocks_backed() const {
    return std::count(backed_.begin(), backed_.end(), true);
  }

  std::int64_t steps = 0, owner_changes = 0, page_copies = 0, packed = 0,
               chained_spans = 0;  ///< that go on where the span before them ends

 private:
  struct Row {
    std::int32_t position = -1;  ///< -1: nothing was written since the superblock changed its owner
    std::array<std::uint64_t, 2> keys{};
  };
  struct Slot {
    std::int32_t position = -1;      ///< of states.front(); -1: nothing was written
    std::vector<Recurrence> states;  ///< before the last span and after each of its tokens
  };
  /// How a slot lies in a file: one without drafts after it.
  struct SlotImage {
    std::int32_t position;
    Recurrence state;
  };

  void rule(bool holds, const char* text) const;
  void carry_out(std::span<const Order> orders);
  void copy_unit(const UnitCopy& copy);
  void change_owner(const ChangeOwner& change);
  void check(const Step& step) const;
  void check(const Span& span) const;
  void check_owner(ViewId view, std::int32_t unit) const;
  Recurrence recurrence_before(const Span& span) const;
  void run_span(const Span& span, StepResult& result);
  Row& row(std::size_t group, PageId page, std::int32_t position);
  const Row& row(std::size_t group, PageId page, std::int32_t position) const;
  Slot& slot_of(ViewId view, std::int32_t unit);
  Slot& slot(SlotId id) { return slots_.at(static_cast<std::size_t>(index(id))); }
  const Slot& slot(SlotId id) const { return slots_.at(static_cast<std::size_t>(index(id))); }
  std::int32_t page_tokens() const { return capacity_.memory.page_tokens; }

  Capacity capacity_;
  const LayeredModel* model_;
  Fault fault_;
  bool checks_rules_;
  std::vector<std::vector<Row>> rows_;  ///< per group
  std::vector<Slot> slots_;
  std::vector<Slot> packed_;
  std::vector<ViewId> owners_;                                ///< empty: fixed
  std::vector<bool> backed_;                                  ///< empty: all are
  std::map<std::pair<std::size_t, PageId>, PageId> aliases_;  ///< of partial_page_shared
};

/// A layout for the model with random page sizes, cut at random.
MemoryLayout random_layout(Random& random, const LayeredModel& model);
/// Another number of superblocks, with other numbers of the same units.
void cut(Random& random, MemoryLayout& layout);

}  // namespace hyb::sim
