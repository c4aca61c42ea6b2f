#include <array>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/memory/session/session_writer.h"
#include "tests/models/reuse_world.h"
#include "tests/support/files.h"

namespace models_reuse_test {

using namespace hyb;
using namespace hyb::models::testing;

namespace {

/// Teacher-forced: the whole answer in one span, its rows drawn again as they were drawn.
Answer scored_again(Loaded& loaded, const Request& request, std::int32_t choice,
                    const Answer& answer) {
  std::vector<TokenId> whole = request.prompt;
  whole.insert(whole.end(), answer.tokens.begin(), answer.tokens.end());
  SamplingParams params = request.sampling;
  params.seed += static_cast<std::uint64_t>(choice);
  const auto prompt = static_cast<std::int32_t>(request.prompt.size());
  Span span = {.tokens = std::span(whole).first(whole.size() - 1),
               .position = 0,
               .tables = loaded.tables,
               .read_slot = no_slot,
               .write_slot = loaded.slot,
               .samples = {}};
  for (std::size_t i = 0; i < answer.tokens.size(); ++i) {
    span.samples.push_back({.token = prompt - 1 + static_cast<std::int32_t>(i),
                            .params = &params,
                            .draw = i,
                            .history = std::span(whole).first(static_cast<std::size_t>(prompt) + i),
                            .prompt_tokens = prompt});
  }
  Answer again;
  for (const SampledToken& sampled : loaded.runner.run({.orders = {}, .spans = {span}}).sampled) {
    again.tokens.push_back(sampled.token);
    again.logprobs.push_back(std::bit_cast<std::uint32_t>(sampled.logprob));
  }
  return again;
}

void check_settings(ReuseFolder& folder) {
  const std::vector<Request> requests = folder.requests();
  const auto plain = folder.live({});
  const std::vector<Answer> expected = answers_of(*plain, requests, 1);
  REQUIRE(expected.size() == 2 * 7);
  const std::int64_t reused = plain->answers.reused;
  CHECK(reused == 2 * 2 * 59);  // further choices go on from the first one's prompt
  const std::size_t logits = folder.logits_seen();
  for (int i = 0; i < 60; ++i) {
    static const char* const memories[] = {"flat", "flip", "remap", "tiny", "small"};
    const Setting setting = {.memory = memories[i % 5],
                             .remembers = i / 5 % 2 == 1,
                             .sequences = i / 10 % 2 == 1 ? 8 : 1,
                             .chunk = std::array{64, 16, 5}[static_cast<std::size_t>(i / 20)]};
    CAPTURE(setting.memory);
    CAPTURE(setting.remembers);
    CAPTURE(setting.sequences);
    CAPTURE(setting.chunk);
    const auto life = folder.live(setting);
    CHECK(answers_of(*life, requests, setting.sequences) == expected);
    CHECK(life->witness.differences == 0);
    if (!setting.remembers || setting.is_short()) continue;
    CHECK(life->answers.reused > reused + 200);
  }
  CHECK(folder.logits_seen() == logits);  // no run ever saw other tokens
}

}  // namespace

TEST_SUITE("models/reuse_matrix") {
  TEST_CASE("no setting of reuse, company, chunks or memory changes a bit of an answer") {
    for (const std::string& name : reuse_folders) {
      CAPTURE(name);
      ReuseFolder folder(name);
      check_settings(folder);
    }
  }

  TEST_CASE("the same with keys and values in F8_E4M3") {
    for (const std::string& name : fp8_folders) {
      CAPTURE(name);
      ReuseFolder folder(name, kernels::Device::cpu, fp8_pages);
      check_settings(folder);
    }
  }

  TEST_CASE("log-probabilities of an answer are those of scoring it again, to the bit") {
    for (const std::string& name : reuse_folders) {
      CAPTURE(name);
      ReuseFolder folder(name);
      const std::vector<Request> requests = folder.requests();
      const auto life = folder.live({.memory = "flip", .remembers = true, .sequences = 8});
      const std::vector<Answer> answers = answers_of(*life, requests, 8);
      Loaded loaded(golden_folder / name, DType::bf16, kernels::best_isa());
      std::size_t next = 0;
      for (int round = 0; round < 2; ++round) {
        for (const Request& request : requests) {
          for (std::int32_t choice = 0; choice < request.choices; ++choice) {
            const Answer& answer = answers.at(next++);
            CHECK(answer.tokens.size() == 12);
            CHECK(scored_again(loaded, request, choice, answer) == answer);
          }
        }
      }
      CHECK(next == answers.size());
    }
  }
}

using namespace hyb;
using namespace hyb::models::testing;
using hyb::testing::TemporaryFolder;

namespace {

using Tokens = std::vector<TokenId>;

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::int32_t length_of(const Tokens& tokens) { return static_cast<std::int32_t>(tokens.size()); }

/// A message sent after a turn; turns are numbered from 1.
struct Turn {
  std::size_t after, message;
  std::uint64_t seed = 0;
};

/// What /regen, /undo, /edit and /goto come down to.
const std::vector<Turn> script = {
    {0, 0},     // the first message
    {1, 1},     // the second
    {1, 1, 7},  // /regen
    {1, 2},     // /undo, and another one
    {0, 3},     // /edit 1
    {2, 4},     // /goto 2
    {2, 4, 9},  // /regen
    {1, 1},     // /undo 2, and the same message as before
};

/// A conversation of tokens: a beginning that lasts, messages with two tokens that lead to them.
struct Talk {
  explicit Talk(ReuseFolder& folder) : system(folder.draw(21)), lead(folder.draw(2)) {
    for (int i = 0; i < 5; ++i) messages.push_back(folder.draw(6 + i));
  }

  /// The chat up to a turn.
  Tokens history(std::size_t turn) const {
    return turn == 0 ? system : joined(prompts[turn - 1], answers[turn - 1].tokens);
  }

  Request request(const Turn& said) {
    const Tokens before = joined(history(said.after), lead);
    Request request;
    request.prompt = joined(before, messages[said.message]);
    // As a chat does, for the same message again.
    request.message_ends = {length_of(before), length_of(request.prompt) - 1};
    request.max_tokens = 9;
    request.sampling.temperature = 1.0F;
    request.sampling.seed = said.seed;
    request.sampling.logprobs = 0;
    return request;
  }

  void add(const Request& request, Answer answer) {
    prompts.push_back(request.prompt);
    answers.push_back(std::move(answer));
  }

  Tokens system, lead;
  std::vector<Tokens> messages, prompts;
  std::vector<Answer> answers;
};

const SessionText text{.fingerprint = {{"model", "this"}}, .app = {"turns"}};

/// What the one has of the tokens is saved, and loaded by the other.
void move_over(Life& from, Life& to, const Tokens& tokens, std::int32_t before,
               const std::filesystem::path& path, bool has_room) {
  SessionWriter writer = SessionWriter::create(path, text);
  const SessionTransfer saved =
      writer.save({.snapshot_io = from.snapshot_io, .sequence = tokens, .before = before});
  CHECK(saved.snapshots <= 2);
  const SessionTransfer restored = restore_session(path, text.fingerprint, to.snapshot_io);
  CHECK(restored.refused == "");
  if (!has_room) return;
  CHECK(restored.left_out == 0);
  CHECK(restored.snapshots <= saved.snapshots);
}

/// Says the script, each turn in the next of these settings and in a process of its own when
/// `reloads`. Returns the usage of each turn.
std::vector<Usage> converse(ReuseFolder& folder, Talk& talk, const std::vector<Setting>& settings,
                            bool reloads, const std::filesystem::path& path) {
  std::vector<Usage> usages;
  std::unique_ptr<Life> life = folder.live(settings.front());
  for (std::size_t turn = 0; turn < script.size(); ++turn) {
    if (reloads && turn > 0) {
      const Setting& setting = settings[turn % settings.size()];
      auto next = folder.live(setting);
      const Tokens prompt = talk.request(script[turn]).prompt;
      move_over(*life, *next, prompt, length_of(prompt) / 2, path, !setting.is_short());
      life = std::move(next);
    }
    const Request request = talk.request(script[turn]);
    talk.add(request, life->ask(request));
    usages.push_back(life->answers.last);
    CHECK(life->witness.differences == 0);
  }
  return usages;
}

/// Of the chat so far, at most the last token of an answer is run, which was only sampled.
void check_reuse(const Talk& talk, const std::vector<Usage>& usages) {
  for (std::size_t turn = 0; turn < script.size(); ++turn) {
    CAPTURE(turn);
    const Turn& said = script[turn];
    bool is_again = false;
    for (std::size_t i = 0; i < turn; ++i) {
      is_again = is_again || (script[i].after == said.after && script[i].message == said.message);
    }
    const Usage& usage = usages[turn];
    CHECK(usage.reused_tokens + usage.prefilled_tokens == length_of(talk.prompts[turn]));
    if (is_again) {
      CHECK(usage.prefilled_tokens == 1);
    } else if (turn > 0) {
      CHECK(usage.reused_tokens >= length_of(talk.history(said.after)) - 1);
    }
  }
}

}  // namespace

TEST_SUITE("models/reuse_session") {
  TEST_CASE("undo, regen, edit and goto: the same bits with and without what was remembered") {
    const TemporaryFolder folder;
    for (const std::string& name : reuse_folders) {
      CAPTURE(name);
      ReuseFolder model(name);
      Talk plain(model);
      const Talk fresh = plain;
      converse(model, plain, {Setting{}}, false, {});
      for (const char* memory : {"flat", "flip", "remap", "tiny", "small"}) {
        for (const bool reloads : {false, true}) {
          for (const std::int32_t chunk : {64, 5}) {
            CAPTURE(memory);
            CAPTURE(reloads);
            CAPTURE(chunk);
            const Setting setting{.memory = memory, .remembers = true, .chunk = chunk};
            Talk talk = fresh;
            const std::vector<Usage> usages =
                converse(model, talk, {setting}, reloads, folder.path() / "s");
            CHECK(talk.answers == plain.answers);
            if (!setting.is_short() && !reloads) check_reuse(talk, usages);
          }
        }
      }
    }
  }

  TEST_CASE("a session goes from any kind of pool to any other, pages of F8_E4M3 too") {
    const TemporaryFolder folder;
    std::vector<std::string> names = reuse_folders;
    // With windows and chunks a flat pool has other groups of pages than the rest.
    std::erase_if(names, [](const std::string& n) { return n == "lfm3" || n == "llama4"; });
    names.insert(names.end(), fp8_folders.begin(), fp8_folders.end());
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string& name = names[i];
      CAPTURE(name);
      const bool is_fp8 = i >= names.size() - fp8_folders.size();
      ReuseFolder model(
          name, kernels::Device::cpu,
          is_fp8 ? fp8_pages : models::GeometryOptions{.load = {.activation = DType::bf16}});
      Talk plain(model);
      Talk talk = plain;
      converse(model, plain, {Setting{}}, false, {});
      std::vector<Setting> settings;
      for (const char* memory : {"flip", "flat", "remap", "tiny", "flip", "small", "remap"}) {
        settings.push_back({.memory = memory, .remembers = true, .chunk = 16});
      }
      converse(model, talk, settings, true, folder.path() / "s");
      CHECK(talk.answers == plain.answers);
    }
  }

  TEST_CASE("requests that ran together are resumed from the file") {
    const TemporaryFolder folder;
    for (const std::string& name : reuse_folders) {
      CAPTURE(name);
      ReuseFolder model(name);
      const std::vector<Request> requests = model.requests();
      const auto ask_all = [&](Life& life) {
        for (const Request& request : requests) life.engine.submit(request, life.answers);
        life.run();
        std::vector<Answer> all;
        for (const auto& [who, answer] : life.answers.heard) all.push_back(answer);
        return all;
      };
      const auto life = model.live({.memory = "remap", .remembers = true, .sequences = 8});
      const std::vector<Answer> answers = ask_all(*life);
      const auto other = model.live({.memory = "flip", .remembers = true, .sequences = 8});
      std::size_t next = 0;
      for (const Request& request : requests) {
        for (std::int32_t choice = 0; choice < request.choices; ++choice) {
          move_over(*life, *other, joined(request.prompt, answers[next++].tokens),
                    length_of(request.prompt), folder.path() / "s", true);
        }
      }
      CHECK(ask_all(*other) == answers);
      CHECK(other->witness.differences == 0);
      CHECK(other->answers.prefilled <= static_cast<std::int64_t>(answers.size()));
    }
  }
}

}  // namespace models_reuse_test
