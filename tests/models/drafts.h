#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/memory/pool/memory_pool.h"
#include "models/memory_layout.h"
#include "tests/models/loaded.h"

namespace hyb::models::testing {

inline constexpr std::int32_t draft_ring_tokens = 7;
/// How many drafts a step of a DraftSchedule has of a sequence, unless it ends before.
inline constexpr std::int32_t draft_counts[] = {0, 1, 3, 5, 7, 4};

/// What a step answers to one token.
struct DraftRow {
  std::vector<float> logits;
  TokenId token;
  float logprob;
  bool operator==(const DraftRow&) const = default;
};

/// What a runner could do wrong with a draft layer: answers do not show it, guesses do.
enum class DraftFault {
  none,
  entries_of_drafting_kept,  ///< a step does not rewrite what drafting wrote to the layer's pages
  carry_of_another,          ///< after a hit the layer goes on from the hidden state of another row
};

/// A runner and its pool, with room for a few sequences that have drafts.
class DraftWorld {
 public:
  static constexpr std::int32_t sequences = 4, length_max = 128, step_tokens = 256;
  static constexpr std::int32_t branches = 8;

  /// load(queue) makes the model; with fixed pools, or with superblocks that change their owners.
  template <typename Load>
  DraftWorld(Load load, kernels::Device device, const kernels::QueueOptions& options, bool is_flat,
             const GraphOptions& graphs = {})
      : queue(device, options),
        model(load(queue)),
        elastic_(is_flat ? ModelMemoryLayout{} : elastic_memory(model.geometry, device)),
        runner(queue, model.plan, model.weights, model.geometry,
               {.memory = is_flat ? flat(model.geometry, device) : elastic_,
                .step_tokens = step_tokens,
                .sequences_max = sequences,
                .positions_max = length_max,
                .vocab_used = model.plan.vocab,
                .graphs = graphs,
                .step_samples = step_tokens,
                .step_branches = branches}),
        pool(runner.capacity().memory) {}

  bool has_rings() const { return pool.layout().has_rings(); }
  DraftFault fault = DraftFault::none;  ///< of superblocks that change their owners
  bool draft_entries = true;            ///< Step's, of the next ones

  /// The next tokens of a sequence; the last ones are drafts. `before`: those in its memory.
  struct Next {
    Memory* memory;
    std::span<const TokenId> before;
    std::vector<TokenId> tokens;
    std::int32_t drafts = 0;
    /// Of each branch that its memory has: the token before the drafts and others after it.
    std::vector<std::vector<TokenId>> branches = {};
  };

  /// What the model's draft layer guesses after the first of the next tokens, as many as there are
  /// drafts.
  std::vector<std::vector<DraftRow>> draft(const std::vector<Next>& nexts,
                                           const SamplingParams& params) {
    Step step;
    std::vector<std::vector<TokenId>> lines;
    for (const Next& next : nexts) {
      reserve(next);
      lines.emplace_back(next.before.begin(), next.before.end()).push_back(next.tokens.front());
    }
    for (std::size_t i = 0; i < nexts.size(); ++i) {
      const Memory& memory = *nexts[i].memory;
      const std::size_t before = nexts[i].before.size();
      step.spans.push_back({.tokens = std::span(lines[i]).last(1),
                            .position = static_cast<std::int32_t>(before),
                            .tables = memory.tables(),
                            .read_slot = memory.read_slot(),
                            .write_slot = no_slot,
                            .samples = {{.token = 0,
                                         .params = &params,
                                         .draw = before,
                                         .history = lines[i],
                                         .prompt_tokens = 1}},
                            .drafts = nexts[i].drafts,
                            .ring = memory.ring_entries() > 0 ? memory.ring() : no_ring,
                            .ring_entries = memory.ring_entries()});
    }
    step.orders = pool.take_orders();
    std::vector<std::vector<DraftRow>> rows;
    for (const std::vector<SampledToken>& drafts : runner.draft(step)) {
      std::vector<DraftRow>& own = rows.emplace_back();
      for (const SampledToken& draft : drafts) own.push_back({{}, draft.token, draft.logprob});
    }
    return rows;
  }

  /// One step; the rows of every token, and after them those of the branches.
  std::vector<std::vector<DraftRow>> run(const std::vector<Next>& nexts,
                                         const SamplingParams& params) {
    Step step;
    step.keep_logits = true;
    step.draft_entries = draft_entries;
    std::vector<std::vector<TokenId>> lines;
    for (const Next& next : nexts) {
      reserve(next);
      std::vector<TokenId>& line = lines.emplace_back(next.before.begin(), next.before.end());
      line.insert(line.end(), next.tokens.begin(), next.tokens.end());
    }
    for (std::size_t i = 0; i < nexts.size(); ++i) {
      const Memory& memory = *nexts[i].memory;
      const auto before = static_cast<std::int32_t>(nexts[i].before.size());
      Span span = {.tokens = nexts[i].tokens,
                   .position = before,
                   .tables = memory.tables(),
                   .read_slot = memory.read_slot(),
                   .write_slot = memory.write_slot(),
                   .samples = {},
                   .drafts = nexts[i].drafts,
                   .ring = memory.ring(),
                   .ring_entries = memory.ring_entries()};
      for (std::size_t t = 0; t < nexts[i].tokens.size(); ++t) {
        span.samples.push_back(
            {.token = static_cast<std::int32_t>(t),
             .params = &params,
             .draw = nexts[i].before.size() + t,
             .history = std::span(lines[i]).first(nexts[i].before.size() + t + 1),
             .prompt_tokens = 1});
      }
      step.spans.push_back(std::move(span));
    }
    for (const Next& next : nexts) {
      for (std::size_t i = 0; i < next.branches.size(); ++i) {
        std::vector<TokenId>& line = lines.emplace_back(next.before.begin(), next.before.end());
        line.insert(line.end(), next.branches[i].begin(), next.branches[i].end());
        step.spans.push_back(branch_of(next, i, lines, params));
      }
    }
    step.orders = pool.take_orders();
    const StepResult result = run_with_fault(step);
    std::vector<std::vector<DraftRow>> rows;
    std::size_t row = 0;
    const auto width = static_cast<std::size_t>(model.plan.vocab);
    for (const Span& span : step.spans) {
      std::vector<DraftRow>& own = rows.emplace_back();
      for (std::size_t t = 0; t < span.samples.size(); ++t, ++row) {
        const auto first = result.logits.begin() + static_cast<std::ptrdiff_t>(row * width);
        own.push_back({{first, first + static_cast<std::ptrdiff_t>(width)},
                       result.sampled[row].token,
                       result.sampled[row].logprob});
      }
    }
    return rows;
  }

  /// With the fault: what the draft layer goes on from is another sequence's.
  void spoil_carry(const Memory& memory, const Memory& other) {
    if (fault != DraftFault::carry_of_another) return;
    runner.run({.orders = pool.take_orders(), .spans = {}});
    const ViewId slots = pool.layout().slot_view();
    write_draft_bytes(slots, index(memory.read_slot()), bytes_of(slots, index(other.read_slot())));
  }

  /// Of superblocks that change their owners: what of a unit answers depend on, and the rest, which
  /// drafts alone read.
  std::pair<std::vector<std::byte>, std::vector<std::byte>> parts_of(ViewId view,
                                                                     std::int32_t unit) {
    std::vector<std::byte> bytes = bytes_of(view, unit);
    bytes.resize(pool.layout().content_bytes(view));
    const auto drafts = bytes.end() - static_cast<std::ptrdiff_t>(draft_bytes(view));
    return {{bytes.begin(), drafts}, {drafts, bytes.end()}};
  }

  /// A sequence becomes one of a session that had no drafts.
  void clear_draft_bytes(const Memory& memory) {
    runner.run({.orders = pool.take_orders(), .spans = {}});
    for (std::size_t group = 0; group < memory.tables().size(); ++group) {
      const ViewId view{static_cast<std::int32_t>(group)};
      for (const PageId page : memory.tables()[group]) {
        if (page != no_page) clear_draft_bytes(view, index(page));
      }
    }
    if (memory.read_slot() == no_slot) return;
    clear_draft_bytes(pool.layout().slot_view(), index(memory.read_slot()));
  }

  /// The state of a sequence, once all orders are carried out.
  std::vector<std::byte> state_of(const Memory& memory) {
    runner.run({.orders = pool.take_orders(), .spans = {}});
    const ViewId slots = pool.layout().slot_view();
    std::vector<std::byte> bytes(pool.layout().content_bytes(slots));
    if (!pool.layout().has_slots()) return bytes;
    bytes.resize(pool.layout().unit_bytes(slots));
    runner.read(slots, index(memory.read_slot()), bytes);
    return bytes;
  }

  kernels::Queue queue;
  Model model;

 private:
  std::vector<std::byte> bytes_of(ViewId view, std::int32_t unit) {
    std::vector<std::byte> bytes(pool.layout().unit_bytes(view));
    runner.read(view, unit, bytes);
    return bytes;
  }

  std::size_t draft_bytes(ViewId view) const {
    return draft_unit_bytes(model.plan, model.geometry,
                            elastic_)[static_cast<std::size_t>(index(view))];
  }

  void clear_draft_bytes(ViewId view, std::int32_t unit) {
    const std::vector<std::byte> zeros(pool.layout().unit_bytes(view));
    write_draft_bytes(view, unit, zeros);
  }

  /// Of a unit those that are the draft layer's, at its end.
  void write_draft_bytes(ViewId view, std::int32_t unit, std::span<const std::byte> from) {
    const std::size_t own = draft_bytes(view);
    const auto end = static_cast<std::ptrdiff_t>(pool.layout().content_bytes(view));
    const auto begin = end - static_cast<std::ptrdiff_t>(own);
    std::vector<std::byte> bytes = bytes_of(view, unit);
    std::copy(from.begin() + begin, from.begin() + end, bytes.begin() + begin);
    runner.write(view, unit, bytes);
  }

  StepResult run_with_fault(Step& step) {
    if (fault != DraftFault::entries_of_drafting_kept) return runner.run(step);
    runner.run({.orders = std::exchange(step.orders, {}), .spans = {}});
    struct Kept {
      ViewId view;
      std::int32_t page;
      std::vector<std::byte> bytes;
    };
    std::vector<Kept> kept;
    for (const Span& span : step.spans) {
      if (span.drafts == 0) continue;
      for (std::size_t group = 0; group < span.tables.size(); ++group) {
        const PageTable& table = span.tables[group];
        const ViewId view{static_cast<std::int32_t>(group)};
        const auto first = static_cast<std::size_t>(span.position / pool.layout().page_tokens);
        for (std::size_t i = first; i < table.size(); ++i) {
          kept.push_back({view, index(table[i]), bytes_of(view, index(table[i]))});
        }
      }
    }
    StepResult result = runner.run(step);
    for (const Kept& one : kept) write_draft_bytes(one.view, one.page, one.bytes);
    return result;
  }

  /// Sampled after its drafts; its sequence's own span is after the token before them.
  static Span branch_of(const Next& next, std::size_t i,
                        const std::vector<std::vector<TokenId>>& lines,
                        const SamplingParams& params) {
    const Memory& memory = *next.memory;
    const Memory::Branch& branch = memory.branch(static_cast<std::int32_t>(i));
    const std::size_t before = next.before.size();
    Span span = {.tokens = next.branches[i],
                 .position = static_cast<std::int32_t>(before),
                 .tables = branch.tables,
                 .read_slot = memory.read_slot(),
                 .write_slot = no_slot,
                 .samples = {},
                 .drafts = static_cast<std::int32_t>(next.branches[i].size()) - 1,
                 .ring = memory.ring(),
                 .branch_ring = branch.ring,
                 .ring_entries = memory.ring_entries()};
    for (std::int32_t t = 1; t <= span.drafts; ++t) {
      const std::size_t end = before + static_cast<std::size_t>(t) + 1;
      span.samples.push_back({.token = t,
                              .params = &params,
                              .draw = end - 1,
                              .history = std::span(lines.back()).first(end),
                              .prompt_tokens = 1});
    }
    return span;
  }

  void reserve(const Next& next) {
    REQUIRE(next.memory->reserve(static_cast<std::int32_t>(next.tokens.size())));
    if (next.drafts > 0 && has_rings()) REQUIRE(next.memory->reserve_ring());
  }

  static StoreLayout flat(const Geometry& geometry, kernels::Device device) {
    return flat_memory(geometry, 4 * sequences * length_max / geometry.page_tokens, 4 * sequences,
                       kernels::handle_bytes_min(device),
                       {.count = sequences + branches, .tokens = draft_ring_tokens});
  }
  static ModelMemoryLayout elastic_memory(const Geometry& geometry, kernels::Device device) {
    const std::size_t sequence = 4 * geometry.slot_bytes +
                                 geometry.page_bytes * 2 * length_max / page_tokens_default +
                                 ring_layout(geometry, draft_ring_tokens).bytes;
    const std::size_t handle = kernels::handle_bytes_min(device);
    return memory_layout_of(geometry,
                            {.pool_bytes = std::max(128 * sequences * sequence, 64 * handle),
                             .ring_tokens = draft_ring_tokens,
                             .flat = {},
                             .handle_bytes_min = handle});
  }

  ModelMemoryLayout elastic_;

 public:
  ModelRunner runner;
  MemoryPool pool;
};

/// A sequence's tokens, and what plain decoding answers to each of them.
struct PlainRun {
  std::vector<TokenId> tokens;
  std::int32_t prompt;
  std::vector<DraftRow> rows = {};
  std::vector<std::byte> state = {};
  /// Where the model has a draft layer: of each token after the prompt, what that guesses then, by
  /// how many guesses there are to be: the masks of a block see each other.
  std::vector<std::array<std::vector<DraftRow>, draft_ring_tokens + 1>> drafts = {};
};

inline PlainRun plain_run(DraftWorld& world, std::int32_t prompt, std::int32_t count,
                          const SamplingParams& params, std::mt19937& random) {
  PlainRun run{.tokens = {}, .prompt = prompt};
  for (std::int32_t i = 0; i < count; ++i) {
    run.tokens.push_back(TokenId{
        static_cast<std::int32_t>(random() % static_cast<unsigned>(world.model.plan.vocab))});
  }
  std::optional<Memory> memory = world.pool.start();
  REQUIRE(memory.has_value());
  for (std::int32_t at = 0; at < count;) {
    const std::span<const TokenId> all(run.tokens);
    const std::int32_t tokens = at == 0 ? prompt : 1;
    const auto piece = all.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(tokens));
    const auto rows = world.run({{.memory = &*memory,
                                  .before = all.first(static_cast<std::size_t>(at)),
                                  .tokens = {piece.begin(), piece.end()}}},
                                params);
    run.rows.insert(run.rows.end(), rows[0].begin(), rows[0].end());
    memory->keep(tokens);
    at += tokens;
    if (!world.model.plan.draft || at + draft_ring_tokens >= count) continue;
    run.drafts.resize(static_cast<std::size_t>(count));
    const auto from = all.subspan(static_cast<std::size_t>(at));
    auto& own = run.drafts[static_cast<std::size_t>(at)];
    for (std::int32_t drafts = draft_ring_tokens; drafts > 0; --drafts) {
      std::vector<DraftRow>& guesses = own[static_cast<std::size_t>(drafts)];
      if (world.model.plan.draft->runs_in_passes() && drafts < draft_ring_tokens) {
        guesses.assign(own.back().begin(), own.back().begin() + drafts);
      } else if (std::ranges::find(draft_counts, drafts) != std::end(draft_counts)) {
        guesses = world.draft({{.memory = &*memory,
                                .before = all.first(static_cast<std::size_t>(at)),
                                .tokens = {from.begin(), from.begin() + 1 + drafts},
                                .drafts = drafts}},
                              params)[0];
      }
    }
  }
  run.state = world.state_of(*memory);
  return run;
}

/// Sequences with random drafts, partly right, and branches of others, in steps together with
/// chunks of prompts and with single tokens; with checkpoints, from which others go on, and rings
/// that are given back.
class DraftSchedule {
 public:
  DraftSchedule(DraftWorld& world, unsigned seed, const SamplingParams& params)
      : world_(world), params_(params), random_(seed) {
    for (const auto& [prompt, count] : {std::pair(21, 70), std::pair(2, 40), std::pair(37, 60)}) {
      all_.push_back({.plain = plain_run(world, prompt, count, params, random_)});
    }
    for (Running& each : all_) each.memory = world.pool.start();
  }

  /// Whether every answer up to the first wrong draft, and the last states, have plain decoding's
  /// bytes.
  bool changes_nothing() {
    while (!std::ranges::all_of(all_, [](const Running& each) { return each.left() == 0; })) {
      run_step();
    }
    for (Running& each : all_) {
      each.memory->release_ring();
      same_ &= world_.state_of(*each.memory) == each.plain.state;
    }
    CHECK(drafted_ > 0);
    CHECK(branches_taken_ > 0);
    CHECK((guessed_ > 0) == world_.model.plan.draft.has_value());
    return same_;
  }

 private:
  struct Running {
    PlainRun plain;
    std::optional<Memory> memory = {};
    std::int32_t at = 0;
    std::int32_t right = 0;                   // drafts of the step
    std::vector<std::int32_t> right_in = {};  // its branches

    std::int32_t left() const { return static_cast<std::int32_t>(plain.tokens.size()) - at; }
    std::span<const TokenId> before() const {
      return std::span(plain.tokens).first(static_cast<std::size_t>(at));
    }
  };

  std::int32_t below(std::int32_t count) {
    return static_cast<std::int32_t>(random_() % static_cast<unsigned>(count));
  }

  DraftWorld::Next next_of(Running& each) {
    DraftWorld::Next next = {
        .memory = &*each.memory, .before = each.before(), .tokens = {}, .drafts = 0};
    const bool is_prompt = each.at < each.plain.prompt;
    const std::int32_t count = is_prompt ? 1 + below(each.plain.prompt - each.at) : 1;
    if (!is_prompt) next.drafts = std::min(draft_counts[below(6)], each.left() - 1);
    const bool has_room = next.drafts == 0 || !world_.has_rings() || each.memory->reserve_ring();
    if (!has_room) next.drafts = 0;  // a small pool may have no ring
    drafted_ += next.drafts;
    each.right = next.drafts == 0 ? 0 : below(next.drafts + 1);
    for (std::int32_t i = 0; i < count + next.drafts; ++i) {
      const TokenId token = each.plain.tokens[static_cast<std::size_t>(each.at + i)];
      const TokenId wrong{(index(token) + 1 + i) % world_.model.plan.vocab};
      next.tokens.push_back(i < count + each.right ? token : wrong);
    }
    each.right_in.clear();
    for (int i = below(3); i > 0 && next.drafts > 0; --i) add_branch(each, next);
    return next;
  }

  void add_branch(Running& each, DraftWorld::Next& next) {
    const std::int32_t drafts = 1 + below(std::min(draft_ring_tokens, each.left() - 1));
    if (!each.memory->reserve_branch(1 + drafts)) return;  // a small pool may have no room
    each.right_in.push_back(below(drafts + 1));
    std::vector<TokenId>& tokens = next.branches.emplace_back();
    for (std::int32_t i = 0; i <= drafts; ++i) {
      const TokenId token = each.plain.tokens[static_cast<std::size_t>(each.at + i)];
      const TokenId wrong{(index(token) + 2 + i) % world_.model.plan.vocab};
      tokens.push_back(i <= each.right_in.back() ? token : wrong);
    }
  }

  /// The rows of its branches begin at `rows`; one is taken where it has more right drafts.
  void take_branch(Running& each, const std::vector<DraftRow>* rows) {
    std::int32_t best = -1, most = each.right;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(each.right_in.size()); ++i) {
      const std::vector<DraftRow>& own = rows[i];
      const std::int32_t right = each.right_in[static_cast<std::size_t>(i)];
      same_ &= std::equal(own.begin(), own.begin() + right, each.plain.rows.begin() + each.at + 1);
      if (right <= most) continue;
      best = i;
      most = right;
    }
    if (best < 0) return;
    each.memory->take_branch(best);
    each.right = most;
    ++branches_taken_;
  }

  void run_step() {
    std::vector<DraftWorld::Next> nexts;
    std::vector<Running*> who;
    for (Running& each : all_) {
      if (each.left() == 0 || (below(5) == 0 && !nexts.empty())) continue;
      who.push_back(&each);
      nexts.push_back(next_of(each));
    }
    if (world_.model.plan.draft && below(3) != 0) draft(who, nexts);
    const auto rows = world_.run(nexts, params_);
    std::size_t branch = who.size();
    for (std::size_t i = 0; i < who.size(); ++i) {
      Running& each = *who[i];
      const std::int32_t own_right = each.right;
      take_branch(each, rows.data() + branch);
      branch += each.right_in.size();
      const auto tokens = static_cast<std::int32_t>(nexts[i].tokens.size());
      const std::int32_t certain = tokens - nexts[i].drafts;
      same_ &= std::equal(rows[i].begin(), rows[i].begin() + certain + own_right,
                          each.plain.rows.begin() + each.at);
      const std::int32_t kept = certain + each.right;
      each.memory->keep(kept, each.right);
      each.at += kept;
      if (below(8) == 0) each.memory->release_ring();
      if (each.left() > 0 && below(6) == 0) run_from_checkpoint(each);
    }
    world_.pool.audit();
  }

  /// The draft layer guesses what it does in plain decoding.
  void draft(const std::vector<Running*>& who, const std::vector<DraftWorld::Next>& nexts) {
    std::vector<DraftWorld::Next> drafting;
    std::vector<const std::vector<DraftRow>*> plain;
    for (std::size_t i = 0; i < who.size(); ++i) {
      const auto at = static_cast<std::size_t>(who[i]->at);
      const auto& known = who[i]->plain.drafts[at][static_cast<std::size_t>(nexts[i].drafts)];
      if (nexts[i].drafts == 0 || known.empty()) continue;
      drafting.push_back(nexts[i]);
      plain.push_back(&known);
    }
    if (drafting.empty()) return;
    const auto rows = world_.draft(drafting, params_);
    for (std::size_t i = 0; i < drafting.size(); ++i) {
      same_ &= rows[i] == *plain[i];
      guessed_ += drafting[i].drafts;
    }
  }

  /// Another sequence that goes on from here, for one token.
  void run_from_checkpoint(Running& each) {
    const std::optional<Checkpoint> checkpoint = each.memory->checkpoint();
    REQUIRE(checkpoint.has_value());
    std::optional<Memory> other = world_.pool.resume(*checkpoint);
    REQUIRE(other.has_value());
    const auto at = static_cast<std::size_t>(each.at);
    if (world_.model.plan.draft && !each.plain.drafts[at][1].empty()) {
      for (const Running& another : all_) {
        if (&another != &each && another.at > 0) world_.spoil_carry(*other, *another.memory);
      }
      const auto drafts = world_.draft({{.memory = &*other,
                                         .before = each.before(),
                                         .tokens = {each.plain.tokens[at], TokenId{0}},
                                         .drafts = 1}},
                                       params_);
      same_ &= drafts[0] == each.plain.drafts[at][1];
    }
    const auto answer = world_.run(
        {{.memory = &*other, .before = each.before(), .tokens = {each.plain.tokens[at]}}}, params_);
    same_ &= answer[0][0] == each.plain.rows[at];
  }

  DraftWorld& world_;
  const SamplingParams& params_;
  std::mt19937 random_;
  std::vector<Running> all_;
  std::int64_t drafted_ = 0, guessed_ = 0, branches_taken_ = 0;
  bool same_ = true;
};

inline bool drafts_change_nothing(DraftWorld& world, unsigned seed, const SamplingParams& params) {
  return DraftSchedule(world, seed, params).changes_nothing();
}

/// What draws, penalises and counts, so that a row that gets another one's would show.
inline SamplingParams drafts_sampling() {
  return {{.temperature = 0.8F,
           .top_k = 50,
           .repetition_penalty = 1.2F,
           .frequency_penalty = 0.3F,
           .presence_penalty = 0.2F,
           .logprobs = 0,
           .seed = 5}};
}

}  // namespace hyb::models::testing
