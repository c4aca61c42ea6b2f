#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/request/model_texts.h"
#include "core/engine/runner.h"
#include "core/memory/pool/memory_pool.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

/// A sequence to be run: a prompt, how many tokens to draw after it, and how its prompt is cut.
struct Passage {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  std::int32_t answer_tokens = 16;
  /// Tokens of the prompt's spans, one after the other; what is left goes in spans as long as a
  /// step allows.
  std::vector<std::int32_t> cuts = {};
};

/// Tokens that a sequence drew, and the logits of each row it drew from, one after the other.
struct Trace {
  std::vector<TokenId> tokens;
  std::vector<float> logits;
};

/// Says where two traces of the same passage part; "" if they are the same bytes.
std::string difference(const Trace& expected, const Trace& found);

/// Runs passages on a runner through the five verbs of memory, without an engine: the caller
/// decides what shares a step and where a sequence is cut.
class Replay {
 public:
  /// The runner outlives it.
  explicit Replay(Runner& runner)
      : runner_(&runner),
        step_tokens_(runner.capacity().step_tokens),
        pool_(runner.capacity().memory) {}

  /// All passages at once, each taking part in every step until it ends. Throws Error(memory) when
  /// the pools are too small and Error(runtime) when a signal asked to stop.
  std::vector<Trace> run(std::span<const Passage> passages);

  struct Resumed {
    Trace straight_on;    ///< of the sequence the checkpoint was taken from
    Trace first, second;  ///< of two sequences that begin at the checkpoint
  };

  /// One passage that is checkpointed after `tokens` of prompt and answer, and runs on to its end;
  /// then two sequences at once go on from the checkpoint. The traces hold the rows after the
  /// checkpoint only. 0 < tokens < prompt and answer together. int8 needs a runner with packed
  /// snapshots.
  Resumed run_resumed(const Passage& passage, std::int32_t tokens,
                      Precision precision = Precision::exact);

 private:
  struct RunningSequence;

  void advance(std::span<RunningSequence> sequences);
  void play(std::span<RunningSequence> sequences);

  Runner* runner_;
  std::int32_t step_tokens_;
  MemoryPool pool_;
};

struct PassageOptions {
  std::int32_t prompts = 6;  ///< of random tokens, or this many of a file's requests
  std::int32_t answer_tokens = 16;
  std::int32_t length_max = 320;  ///< of prompt and answer
  std::int32_t vocab;             ///< ids below it may occur
  std::uint64_t seed = 1;
};

/// Prompts of random tokens, of lengths from one token on, and of some lines of text where there is
/// a tokenizer. Every other one is sampled, with penalties; the rest is greedy.
std::vector<Passage> make_passages(const PassageOptions& passage_options,
                                   const Tokenizer* tokenizer);

/// The prompts of requests as `hyb batch` takes them, `passage_options.prompts` of the file's,
/// evenly spread; greedy unless a request says otherwise. passage_options.length_max bounds prompt
/// and answer. Throws Error(usage) naming the line that is no request or is too long, and
/// Error(model) for a file that cannot be read.
std::vector<Passage> read_passages(const std::string& file, const PassageOptions& passage_options,
                                   const ModelTexts& texts);

}  // namespace hyb::app
