#pragma once

#include <doctest/doctest.h>

#include <algorithm>
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

/// What a step answers to one token.
struct DraftRow {
  std::vector<float> logits;
  TokenId token;
  float logprob;
  bool operator==(const DraftRow&) const = default;
};

/// A runner and its pool, with room for a few sequences that have drafts.
class DraftWorld {
 public:
  static constexpr std::int32_t sequences = 4, length_max = 128, step_tokens = 256;

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
                .step_rows = sequences,
                .positions_max = length_max,
                .vocab_used = model.plan.vocab,
                .graphs = graphs,
                .step_samples = step_tokens}),
        pool(runner.capacity().memory) {}

  bool has_rings() const { return pool.has_rings(); }

  /// The next tokens of a sequence; the last ones are drafts. `before`: those in its memory.
  struct Next {
    Memory* memory;
    std::span<const TokenId> before;
    std::vector<TokenId> tokens;
    std::int32_t drafts = 0;
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

  /// One step; the rows of every token.
  std::vector<std::vector<DraftRow>> run(const std::vector<Next>& nexts,
                                         const SamplingParams& params) {
    Step step;
    step.keep_logits = true;
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
    step.orders = pool.take_orders();
    const StepResult result = runner.run(step);
    std::vector<std::vector<DraftRow>> rows;
    std::size_t row = 0;
    const auto width = static_cast<std::size_t>(model.plan.vocab);
    for (const Next& next : nexts) {
      std::vector<DraftRow>& own = rows.emplace_back();
      for (std::size_t t = 0; t < next.tokens.size(); ++t, ++row) {
        const auto first = result.logits.begin() + static_cast<std::ptrdiff_t>(row * width);
        own.push_back({{first, first + static_cast<std::ptrdiff_t>(width)},
                       result.sampled[row].token,
                       result.sampled[row].logprob});
      }
    }
    return rows;
  }

  /// The state of a sequence, once all orders are carried out.
  std::vector<std::byte> state_of(const Memory& memory) {
    runner.run({.orders = pool.take_orders(), .spans = {}});
    const ViewId slots = pool.layout().slot_view();
    std::vector<std::byte> bytes(pool.layout().content_bytes(slots));
    if (!pool.has_slots()) return bytes;
    bytes.resize(pool.layout().unit_bytes(slots));
    runner.read(slots, index(memory.read_slot()), bytes);
    return bytes;
  }

  kernels::Queue queue;
  Model model;

 private:
  void reserve(const Next& next) {
    REQUIRE(next.memory->reserve(static_cast<std::int32_t>(next.tokens.size())));
    if (next.drafts > 0 && has_rings()) REQUIRE(next.memory->reserve_ring());
  }

  static StoreLayout flat(const Geometry& geometry, kernels::Device device) {
    return flat_memory(geometry, 2 * sequences * length_max / geometry.page_tokens, 4 * sequences,
                       kernels::handle_bytes_min(device),
                       {.count = sequences, .tokens = draft_ring_tokens});
  }
  static ModelMemoryLayout elastic_memory(const Geometry& geometry, kernels::Device device) {
    const std::size_t sequence = 4 * geometry.slot_bytes +
                                 geometry.page_bytes * 2 * length_max / page_tokens +
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
  /// Where the model has a draft layer: of each token after the prompt, what that guesses then.
  std::vector<std::vector<DraftRow>> drafts = {};
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
    run.drafts[static_cast<std::size_t>(at)] =
        world.draft({{.memory = &*memory,
                      .before = all.first(static_cast<std::size_t>(at)),
                      .tokens = {from.begin(), from.begin() + 1 + draft_ring_tokens},
                      .drafts = draft_ring_tokens}},
                    params)[0];
  }
  run.state = world.state_of(*memory);
  return run;
}

/// Sequences with random drafts, partly right, in steps together with chunks of prompts and with
/// single tokens; with checkpoints, from which others go on, and rings that are given back.
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
    CHECK((guessed_ > 0) == world_.model.plan.draft.has_value());
    return same_;
  }

 private:
  struct Running {
    PlainRun plain;
    std::optional<Memory> memory = {};
    std::int32_t at = 0;
    std::int32_t right = 0;  // drafts of the step

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
    constexpr std::int32_t draft_counts[] = {0, 1, 3, 5, 7, 4};
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
    return next;
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
    for (std::size_t i = 0; i < who.size(); ++i) {
      Running& each = *who[i];
      const auto tokens = static_cast<std::int32_t>(nexts[i].tokens.size());
      const std::int32_t kept = tokens - nexts[i].drafts + each.right;
      same_ &=
          std::equal(rows[i].begin(), rows[i].begin() + kept, each.plain.rows.begin() + each.at);
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
      if (nexts[i].drafts == 0 || who[i]->plain.drafts[at].empty()) continue;
      drafting.push_back(nexts[i]);
      plain.push_back(&who[i]->plain.drafts[at]);
    }
    if (drafting.empty()) return;
    const auto rows = world_.draft(drafting, params_);
    for (std::size_t i = 0; i < drafting.size(); ++i) {
      same_ &= std::ssize(rows[i]) == drafting[i].drafts &&
               std::equal(rows[i].begin(), rows[i].end(), plain[i]->begin());
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
    if (world_.model.plan.draft && !each.plain.drafts[at].empty()) {
      const auto drafts = world_.draft({{.memory = &*other,
                                         .before = each.before(),
                                         .tokens = {each.plain.tokens[at], TokenId{0}},
                                         .drafts = 1}},
                                       params_);
      same_ &= drafts[0][0] == each.plain.drafts[at][0];
    }
    const auto answer = world_.run(
        {{.memory = &*other, .before = each.before(), .tokens = {each.plain.tokens[at]}}}, params_);
    same_ &= answer[0][0] == each.plain.rows[at];
  }

  DraftWorld& world_;
  const SamplingParams& params_;
  std::mt19937 random_;
  std::vector<Running> all_;
  std::int64_t drafted_ = 0, guessed_ = 0;
  bool same_ = true;
};

inline bool drafts_change_nothing(DraftWorld& world, unsigned seed, const SamplingParams& params) {
  return DraftSchedule(world, seed, params).changes_nothing();
}

/// What draws, penalises and counts, so that a row that gets another one's would show.
inline SamplingParams drafts_sampling() {
  return {.temperature = 0.8F,
          .top_k = 50,
          .repetition_penalty = 1.2F,
          .frequency_penalty = 0.3F,
          .presence_penalty = 0.2F,
          .seed = 5,
          .bias = {},
          .logprobs = 0};
}

}  // namespace hyb::models::testing
