#include "core/engine/sequence.h"
#include "core/engine/accept_drafts.h"

#include <doctest/doctest.h>

#include <utility>

#include "tests/sim/toy_model.h"

namespace sequence_test {

using namespace hyb;
using hyb::sim::toy_end;
using hyb::sim::toy_tokenizer;

namespace {

const MemoryLayout plenty = flat_layout({.pages = 20, .slots = 4, .page_tokens = 4});

RequestTerms terms_of(Request request, const Tokenizer* tokenizer = &toy_tokenizer()) {
  RequestTerms terms;
  terms.id = RequestId{7};
  terms.stop = StopStrings(request.stop);
  terms.request = std::move(request);
  terms.length_max = 20;
  terms.tokenizer = tokenizer;
  terms.submitted = Clock::now();
  return terms;
}

Request three_tokens() {
  Request request;
  request.prompt = {TokenId{1}, TokenId{2}, TokenId{3}};
  request.stop_tokens = {toy_end};
  return request;
}

SampledToken drew(std::int32_t token) { return {.token = TokenId{token}, .top = {}}; }

Span span_of(Sequence& sequence, std::int32_t tokens) {
  Span span;
  sequence.fill(span, tokens);
  return span;
}

/// Feeds tokens as if they had been drawn, and returns what was said.
std::string said(Sequence& sequence, std::initializer_list<std::int32_t> tokens) {
  std::string text;
  for (const std::int32_t token : tokens) {
    REQUIRE_FALSE(sequence.finished());
    text += sequence.accept(drew(token), Clock::now());
  }
  return text;
}

}  // namespace

TEST_SUITE("core/engine/sequence") {
  TEST_CASE("a span samples only where the known tokens end") {
    const RequestTerms terms = terms_of(three_tokens());
    MemoryPool pool(plenty);
    Sequence sequence(terms, 2);
    sequence.start(*pool.start());
    REQUIRE(sequence.memory().reserve(3));
    CHECK(sequence.pending() == 3);
    CHECK(span_of(sequence, 2).samples.empty());
    const Span whole = span_of(sequence, 3);
    REQUIRE(whole.samples.size() == 1);
    CHECK(whole.samples[0].token == 2);
    CHECK(whole.samples[0].draw == 0);
    CHECK(whole.samples[0].history.size() == 3);
    CHECK(whole.samples[0].prompt_tokens == 3);
    CHECK(whole.samples[0].params->seed == 2);

    sequence.ran(3, Clock::now());
    sequence.accept(drew(4), Clock::now());
    const Span next = span_of(sequence, 1);
    CHECK(next.position == 3);
    CHECK(next.tokens[0] == TokenId{4});
    CHECK(next.samples[0].draw == 1);
    CHECK(next.samples[0].history.size() == 4);
  }

  TEST_CASE("drafts are in the span, and each is drawn after as plain decoding draws there") {
    Request request = three_tokens();
    request.sampling.seed = 5;
    const RequestTerms terms = terms_of(std::move(request));
    MemoryPool pool(flat_layout({.pages = 10, .page_tokens = 4}));
    Sequence sequence(terms, 0);
    sequence.start(*pool.start());
    CHECK(sequence.draft_room() == 0);
    REQUIRE(sequence.memory().reserve(8));
    sequence.ran(3, Clock::now());
    CHECK(sequence.draft_room() == 0);
    sequence.accept(drew(4), Clock::now());
    CHECK(sequence.draft_room() == 20 - 4 - 1);
    sequence.drafted().set_drafts(std::vector{TokenId{5}, TokenId{6}, TokenId{7}});
    CHECK(sequence.tokens() == 4);
    CHECK(sequence.known().size() == 4);
    CHECK(sequence.pending() == 1);
    const Span span = span_of(sequence, 1);
    CHECK(span.drafts == 3);
    CHECK(span.ring == no_ring);
    REQUIRE(span.tokens.size() == 4);
    CHECK(span.tokens[3] == TokenId{7});
    REQUIRE(span.samples.size() == 4);
    for (std::int32_t i = 0; i < 4; ++i) {
      const SampleRow& row = span.samples[static_cast<std::size_t>(i)];
      CHECK(row.token == i);
      CHECK(row.draw == static_cast<std::uint64_t>(1 + i));
      CHECK(std::ssize(row.history) == 4 + i);
      CHECK(row.history.back() == TokenId{4 + i});
    }
    CHECK(sequence.drafted().is_drafted(drew(5)));
    CHECK_FALSE(sequence.drafted().is_drafted({.token = TokenId{5}, .finite = false, .top = {}}));
    sequence.accept(drew(5), Clock::now());
    CHECK(sequence.drafted().drafts() == 2);
    CHECK_FALSE(sequence.drafted().is_drafted(drew(9)));
    sequence.accept(drew(9), Clock::now());
    CHECK(sequence.drafted().drafts() == 0);
    CHECK(sequence.tokens() == 6);
    CHECK(sequence.known().back() == TokenId{9});
    sequence.ran(2, Clock::now(), {.steps = 1, .accepted = 1, .rejected = 2});
    CHECK(sequence.pending() == 1);
    CHECK(span_of(sequence, 1).samples.size() == 1);

    sequence.cuts().add({.length = 8, .place = SnapshotPlace::branch});
    CHECK(sequence.draft_room() == 2);
    sequence.drafted().set_drafts(std::vector{TokenId{1}, TokenId{2}});
    sequence.release();
    CHECK(sequence.drafted().drafts() == 0);
    CHECK(sequence.tokens() == 6);
    sequence.end(FinishReason::cancelled);
    const Usage usage = sequence.take_completion().usage;
    CHECK(usage.drafts.steps == 1);
    CHECK(usage.drafts.accepted == 1);
    CHECK(usage.drafts.rejected == 2);
  }

  TEST_CASE("a branch goes on where its token is drawn, with the drafts accepted before") {
    const RequestTerms terms = terms_of(three_tokens());
    MemoryPool pool(flat_layout({.pages = 20, .page_tokens = 4}));
    const auto ids = [](std::initializer_list<std::int32_t> numbers) {
      std::vector<TokenId> tokens;
      for (const std::int32_t number : numbers) tokens.push_back(TokenId{number});
      return tokens;
    };
    const auto rows_of = [](std::initializer_list<std::int32_t> numbers) {
      std::vector<SampledToken> rows;
      for (const std::int32_t number : numbers) rows.push_back(drew(number));
      return rows;
    };
    // Drafts 5 6 7, and instead 5 8 9 and 5 8 4.
    const auto accepted_of = [&](std::initializer_list<std::int32_t> own,
                                 std::initializer_list<std::int32_t> first,
                                 std::initializer_list<std::int32_t> second, TokenId last) {
      Sequence sequence(terms, 0);
      sequence.start(*pool.start());
      REQUIRE(sequence.memory().reserve(8));
      sequence.ran(3, Clock::now());
      sequence.accept(drew(4), Clock::now());
      sequence.drafted().set_drafts(ids({5, 6, 7}));
      for (const std::int32_t shared : {1, 2}) {
        REQUIRE(sequence.memory().reserve_branch(4));
        sequence.drafted().add_branch(shared == 1 ? ids({5, 8, 9}) : ids({5, 8, 4}), shared);
        Span span;
        sequence.fill_branch(span, shared - 1);
        CHECK(span.position == 3);
        CHECK(span.drafts == 3);
        CHECK(span.tokens[0] == TokenId{4});
        CHECK(span.tokens[2] == TokenId{8});
        REQUIRE(std::ssize(span.samples) == 3 - shared);
        CHECK(span.samples[0].token == shared + 1);
        CHECK(span.samples[0].draw == static_cast<std::uint64_t>(2 + shared));
        CHECK(std::ssize(span.samples[0].history) == 5 + shared);
        CHECK(span.samples[0].history.back() == span.tokens[static_cast<std::size_t>(1 + shared)]);
      }
      const auto own_rows = rows_of(own), first_rows = rows_of(first),
                 second_rows = rows_of(second);
      const AcceptedDrafts accepted = accept_drafts(
          sequence, own_rows,
          {{.rows = first_rows, .rows_begin = 2}, {.rows = second_rows, .rows_begin = 3}},
          Clock::now());
      CHECK(sequence.known().back() == last);
      CHECK(sequence.drafted().drafts() == 0);
      CHECK(std::ssize(sequence.known()) == 5 + accepted.count);
      return std::pair(accepted.count, accepted.branch.value_or(-1));
    };
    using Accepted = std::pair<std::int32_t, std::int32_t>;
    CHECK(accepted_of({5, 6, 7, 1}, {0, 0}, {0}, TokenId{1}) == Accepted{3, -1});
    CHECK(accepted_of({5, 8, 0, 0}, {9, 2}, {0}, TokenId{2}) == Accepted{3, 0});
    CHECK(accepted_of({5, 8, 0, 0}, {4, 0}, {3}, TokenId{3}) == Accepted{3, 1});
    CHECK(accepted_of({5, 8, 0, 0}, {6, 0}, {0}, TokenId{6}) == Accepted{2, 0});
    CHECK(accepted_of({8, 0, 0, 0}, {9, 0}, {0}, TokenId{8}) == Accepted{0, -1});
    // An end of text ends it in a branch as anywhere.
    CHECK(accepted_of({5, 8, 0, 0}, {index(toy_end), 0}, {0}, toy_end) == Accepted{2, 0});
    CHECK(pool.all_free());
  }

  TEST_CASE("an answer that ends among its drafts drops the others") {
    const RequestTerms terms = terms_of(three_tokens());
    MemoryPool pool(flat_layout({.pages = 10, .page_tokens = 4}));
    Sequence sequence(terms, 0);
    sequence.start(*pool.start());
    REQUIRE(sequence.memory().reserve(8));
    sequence.ran(3, Clock::now());
    sequence.accept(drew(4), Clock::now());
    sequence.drafted().set_drafts(std::vector{toy_end, TokenId{6}});
    CHECK(sequence.drafted().is_drafted(drew(index(toy_end))));
    sequence.accept(drew(index(toy_end)), Clock::now());
    CHECK(sequence.finished());
    CHECK(sequence.take_completion().tokens == std::vector{TokenId{4}, toy_end});
  }

  TEST_CASE("a prefix_owner stops before the last prompt token until released") {
    const RequestTerms terms = terms_of(three_tokens());
    MemoryPool pool(plenty);
    Sequence sequence(terms, 0);
    sequence.hold_at_prompt_end(true);
    sequence.start(*pool.start());
    CHECK(sequence.pending() == 2);
    CHECK_FALSE(sequence.at_prompt_end());
    REQUIRE(sequence.memory().reserve(2));
    CHECK(span_of(sequence, 2).samples.empty());
    sequence.ran(2, Clock::now());
    CHECK(sequence.at_prompt_end());
    sequence.hold_at_prompt_end(false);
    CHECK(sequence.pending() == 1);
  }

  TEST_CASE("a snapshot is wanted once, and where it was not left, again") {
    const RequestTerms terms = terms_of(three_tokens());
    MemoryPool pool(plenty);
    Sequence sequence(terms, 0);
    sequence.cuts() = Cuts({{.length = 1, .place = SnapshotPlace::message_end},
                            {.length = 2, .place = SnapshotPlace::prompt_end}});
    sequence.cuts().add({.length = 2, .place = SnapshotPlace::branch});
    CHECK(sequence.cuts().next(0, 9) == 1);
    CHECK(sequence.cuts().next(1, 9) == 2);
    CHECK(sequence.cuts().next(2, 9) == 9);
    sequence.start(*pool.start());
    const auto run = [&](std::int32_t tokens) {
      REQUIRE(sequence.memory().reserve(tokens));
      sequence.ran(tokens, Clock::now());
    };
    CHECK(sequence.pending() == 3);
    CHECK_FALSE(sequence.cuts().take(sequence.memory().length()));
    run(1);
    CHECK(sequence.cuts().take(sequence.memory().length()) == SnapshotPlace::message_end);
    CHECK_FALSE(sequence.cuts().take(sequence.memory().length()));
    sequence.release();
    sequence.start(*pool.start());
    run(2);
    CHECK(sequence.cuts().take(sequence.memory().length()) == SnapshotPlace::prompt_end);
    CHECK(sequence.cuts().next(0, 9) == 9);
  }

  TEST_CASE("in pieces, each span begins where the one before it ends") {
    const RequestTerms terms = terms_of(three_tokens());
    MemoryPool pool(plenty);
    Sequence sequence(terms, 0);
    sequence.start(*pool.start());
    REQUIRE(sequence.memory().reserve(3));
    REQUIRE(sequence.memory().reserve_cut(1));
    REQUIRE(sequence.memory().reserve_cut(2));
    Span first, second, last;
    sequence.fill(first, 1, 0);
    sequence.fill(second, 1, 1);
    sequence.fill(last, 1, 2);
    CHECK(first.position == 0);
    CHECK(second.position == 1);
    CHECK(last.position == 2);
    CHECK(last.tokens.data() == sequence.prompt().data() + 2);
    CHECK(first.samples.empty());
    CHECK(second.samples.empty());
    CHECK(last.samples.size() == 1);
    CHECK(first.read_slot == no_slot);
    CHECK(second.read_slot == first.write_slot);
    CHECK(last.read_slot == second.write_slot);
  }

  TEST_CASE("a point that was passed is wanted no more") {
    const RequestTerms terms = terms_of(three_tokens());
    MemoryPool pool(plenty);
    Sequence sequence(terms, 0);
    sequence.cuts() = Cuts({{.length = 1, .place = SnapshotPlace::message_end}});
    sequence.start(*pool.start());
    REQUIRE(sequence.memory().reserve(2));
    sequence.ran(2, Clock::now());
    CHECK_FALSE(sequence.cuts().take(sequence.memory().length()));
    CHECK(sequence.cuts().next(0, 9) == 9);
  }

  TEST_CASE("a sequence that only prefills samples nothing and ends when all is run") {
    Request request = three_tokens();
    request.prefill_only = true;
    const RequestTerms terms = terms_of(request);
    MemoryPool pool(plenty);
    Sequence sequence(terms, 0);
    sequence.start(*pool.start());
    REQUIRE(sequence.memory().reserve(3));
    CHECK(span_of(sequence, 3).samples.empty());
    CHECK_FALSE(sequence.end_if_prefilled(Clock::now()));
    sequence.ran(3, Clock::now());
    REQUIRE(sequence.end_if_prefilled(Clock::now()));
    const Completion completion = sequence.take_completion();
    CHECK(completion.reason == FinishReason::stop);
    CHECK(completion.tokens.empty());
    CHECK(completion.usage.prefilled_tokens == 3);
  }

  TEST_CASE("usage says why no more was reused") {
    const RequestTerms terms = terms_of(three_tokens(), nullptr);
    MemoryPool pool(plenty);
    Memory source = *pool.start();
    REQUIRE(source.reserve(2));
    source.keep(1);
    const Checkpoint one = *source.checkpoint();
    source.keep(1);
    const Checkpoint two = *source.checkpoint();
    const auto limit = [&](Memory memory, const Resumed& resumed, bool run_twice = false) {
      Sequence sequence(terms, 0);
      sequence.start(std::move(memory), resumed);
      for (int i = run_twice ? 2 : 1; i > 0; --i) {
        const std::int32_t tokens = sequence.pending();
        REQUIRE(sequence.memory().reserve(tokens));
        sequence.ran(tokens, Clock::now());
        if (i == 2) {
          sequence.release();
          sequence.start(*pool.start());
        }
      }
      sequence.end(FinishReason::cancelled);
      return sequence.take_completion().usage.reuse_limit;
    };
    const auto tracked = [](std::int32_t matched) {
      return Resumed{.matched = matched, .is_tracked = true};
    };
    CHECK(limit(*pool.start(), {}) == ReuseLimit::off);
    CHECK(limit(*pool.start(), tracked(0)) == ReuseLimit::nothing_known);
    CHECK(limit(*pool.start(), tracked(1)) == ReuseLimit::no_snapshot);
    CHECK(limit(*pool.resume(one), tracked(1)) == ReuseLimit::new_text);
    CHECK(limit(*pool.resume(one), tracked(3)) == ReuseLimit::no_snapshot);
    CHECK(limit(*pool.resume(two), tracked(3)) == ReuseLimit::last_token);
    CHECK(limit(*pool.resume(two), tracked(3), true) == ReuseLimit::memory_was_taken);
    CHECK(text_of(ReuseLimit::no_snapshot) == "no snapshot there");
  }

  TEST_CASE("one that comes back to an int8 snapshot says so, though it began without") {
    const FullAttention full;
    MemoryPool pool({.page_tokens = 4,
                     .groups = {{.kind = &full, .page_bytes = 10, .pages_per_superblock = 6}},
                     .slots = {.bytes = 30, .per_superblock = 2},
                     .packed = {.bytes = 15, .per_superblock = 4},
                     .superblock_bytes = 60,
                     .superblocks = 9,
                     .fixed_superblocks = {}});
    Memory source = *pool.start();
    REQUIRE(source.reserve(2));
    source.keep(2);
    for (const Precision precision : {Precision::exact, Precision::int8}) {
      Snapshot snapshot;
      snapshot.checkpoint = *source.checkpoint(precision);
      const RequestTerms terms = terms_of(three_tokens(), nullptr);
      Sequence sequence(terms, 0);
      sequence.start(*pool.start(), {.is_tracked = true});
      sequence.release();
      sequence.start(*pool.resume(snapshot.checkpoint),
                     {.matched = 2, .snapshot = &snapshot, .is_tracked = true});
      sequence.end(FinishReason::cancelled);
      const Usage usage = sequence.take_completion().usage;
      CHECK(usage.resumed_packed == (precision == Precision::int8));
      CHECK(usage.resumed_at == std::nullopt);  // where it began
    }
  }

  TEST_CASE("a stop token ends the answer, is in its tokens and not in its text") {
    const RequestTerms terms = terms_of(three_tokens());
    Sequence sequence(terms, 0);
    CHECK(said(sequence, {0, 1, 10}) == "ab");
    REQUIRE(sequence.finished());
    const Completion completion = sequence.take_completion();
    CHECK(completion.reason == FinishReason::stop);
    CHECK(completion.tokens == std::vector<TokenId>{TokenId{0}, TokenId{1}, TokenId{10}});
    CHECK(completion.text == "ab");
    CHECK(completion.usage.completion_tokens == 3);
  }

  TEST_CASE("with ignore_eos a stop token is an ordinary one") {
    Request request = three_tokens();
    request.ignore_eos = true;
    request.max_tokens = 3;
    const RequestTerms terms = terms_of(request);
    Sequence sequence(terms, 0);
    CHECK(said(sequence, {0, 10, 1}) == "ab");
    CHECK(sequence.take_completion().reason == FinishReason::length);
  }

  TEST_CASE("the limit of tokens and the limit of length end an answer") {
    Request request = three_tokens();
    const RequestTerms long_terms = terms_of(request);
    Sequence long_one(long_terms, 0);
    while (!long_one.finished()) said(long_one, {0});
    CHECK(long_one.tokens() == 20);
    CHECK(long_one.take_completion().reason == FinishReason::length);

    request.max_tokens = 2;
    const RequestTerms short_terms = terms_of(request);
    Sequence short_one(short_terms, 0);
    CHECK(said(short_one, {0, 1}) == "ab");
    CHECK(short_one.take_completion().reason == FinishReason::length);
  }

  TEST_CASE("text comes in whole characters, and a broken one at the end is shown as such") {
    const RequestTerms terms = terms_of(three_tokens());
    Sequence sequence(terms, 0);
    CHECK(said(sequence, {5}) == "");
    CHECK(said(sequence, {6}) == "é");
    CHECK(said(sequence, {7, 8}) == "");
    CHECK(sequence.end(FinishReason::cancelled) == "\xEF\xBF\xBD");
    CHECK(sequence.take_completion().text == "é\xEF\xBF\xBD");
  }

  TEST_CASE("a stop string spans tokens; what it held back is never said") {
    Request request = three_tokens();
    request.stop = {"abba", "c"};
    const RequestTerms terms = terms_of(request);
    Sequence sequence(terms, 0);
    CHECK(said(sequence, {0}) == "");
    CHECK(said(sequence, {3}) == "a");
    CHECK(said(sequence, {4}) == "");
    REQUIRE(sequence.finished());
    const Completion completion = sequence.take_completion();
    CHECK(completion.reason == FinishReason::stop);
    CHECK(completion.text == "a");
    CHECK(completion.tokens.size() == 3);
  }

  TEST_CASE("a stop string ends the answer, not a thought before it") {
    Request request = three_tokens();
    request.start = {.may_think = true, .markers = {.begin = "a", .end = "c"}};
    const auto finish = [&](std::vector<std::string> stop,
                            std::initializer_list<std::int32_t> ids) {
      request.stop = std::move(stop);
      const RequestTerms terms = terms_of(request);
      Sequence sequence(terms, 0);
      std::string text = said(sequence, ids);
      if (!sequence.finished()) text += sequence.end(FinishReason::cancelled);
      const Completion completion = sequence.take_completion();
      CHECK(completion.text == text);
      return text + (completion.reason == FinishReason::stop ? "." : "");
    };
    // A thought "b" between its markers, then the answer.
    CHECK(finish({"b"}, {0, 1, 2, 1}) == "abc.");
    CHECK(finish({"c"}, {0, 1, 2, 1, 2}) == "abcb.");
    CHECK(finish({"b"}, {1}) == ".");
    // What spans the border is none, and the search starts again after it.
    CHECK(finish({"cb"}, {0, 1, 2, 1}) == "abcb");
    CHECK(finish({"bcb"}, {0, 1, 2, 1, 2, 1}) == "abc.");
    request.start = {};
    CHECK(finish({"b"}, {0, 1}) == "a.");
  }

  TEST_CASE("held text is said when the answer ends otherwise") {
    Request request = three_tokens();
    request.stop = {"abba"};
    request.max_tokens = 2;
    const RequestTerms terms = terms_of(request);
    Sequence sequence(terms, 0);
    CHECK(said(sequence, {0, 1}) == "ab");
    CHECK(sequence.take_completion().reason == FinishReason::length);

    Sequence cancelled(terms, 0);
    CHECK(said(cancelled, {0}) == "");
    CHECK(cancelled.end(FinishReason::cancelled) == "a");
  }

  TEST_CASE("the rest of a broken character may complete a stop string") {
    Request request = three_tokens();
    request.stop = {"a\xEF\xBF\xBD"};
    request.max_tokens = 2;
    const RequestTerms terms = terms_of(request);
    Sequence sequence(terms, 0);
    CHECK(said(sequence, {0, 7}) == "");
    const Completion completion = sequence.take_completion();
    CHECK(completion.reason == FinishReason::stop);
    CHECK(completion.text == "");
  }

  TEST_CASE("logits that are not finite end the answer with an error that says where") {
    const RequestTerms terms = terms_of(three_tokens());
    Sequence sequence(terms, 0);
    said(sequence, {0, 1});
    sequence.accept({.token = TokenId{3}, .finite = false, .top = {}}, Clock::now());
    REQUIRE(sequence.finished());
    const Completion completion = sequence.take_completion();
    CHECK(completion.reason == FinishReason::error);
    CHECK(completion.error.starts_with("the model produced NaN logits at position 4"));
    CHECK(completion.tokens.size() == 2);
    CHECK(completion.text == "ab");
  }

  TEST_CASE("what is run again is not counted twice") {
    const RequestTerms terms = terms_of(three_tokens(), nullptr);
    MemoryPool pool(plenty);
    Sequence sequence(terms, 0);
    const auto run = [&](std::int32_t tokens) {
      REQUIRE(sequence.memory().reserve(tokens));
      sequence.ran(tokens, Clock::now());
    };
    sequence.start(*pool.start());
    run(2);
    sequence.release();
    sequence.start(*pool.start());
    run(3);
    sequence.accept(drew(1), Clock::now());
    run(1);
    sequence.release();
    sequence.accept(drew(1), Clock::now());
    sequence.start(*pool.start());
    run(5);
    sequence.end(FinishReason::cancelled);
    const Usage usage = sequence.take_completion().usage;
    CHECK(usage.prefilled_tokens == 3);
    CHECK(usage.reused_tokens == 0);
    CHECK(usage.recomputed_tokens == 2 + 4);
  }

  TEST_CASE("the times of tokens are kept on request") {
    Request request = three_tokens();
    request.token_times = true;
    const RequestTerms terms = terms_of(request);
    MemoryPool pool(plenty);
    Sequence sequence(terms, 0);
    sequence.start(*pool.start());
    const Clock::time_point begin = Clock::now();
    const std::vector<Clock::time_point> times = {begin, begin + std::chrono::milliseconds(3)};
    static_cast<void>(sequence.accept(drew(4), times[0]));
    static_cast<void>(sequence.accept(drew(index(toy_end)), times[1]));
    CHECK(sequence.take_completion().token_times == times);

    const RequestTerms others = terms_of(three_tokens());
    Sequence quiet(others, 0);
    quiet.start(*pool.start());
    CHECK(said(quiet, {4, index(toy_end)}).size() > 0);
    CHECK(quiet.take_completion().token_times.empty());
  }
}

}  // namespace sequence_test
