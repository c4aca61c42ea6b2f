#pragma once

#include <cstdint>
#include <memory>

#include "core/engine/request.h"
#include "core/engine/runner.h"
#include "core/memory/memory.h"

namespace hyb {

class Tokenizer;

struct EngineOptions {
  std::int32_t length_max;          ///< most tokens of one sequence: prompt and answer
  std::int32_t sequences_max = 64;  ///< most sequences that run at once
  std::int32_t chunk_tokens = 512;  ///< most prompt tokens of one sequence in one step
};

/// Runs many requests at once on one Runner: every command goes through here and nobody else holds
/// a Memory. One thread calls it; it starts none.
class Engine {
 public:
  /// `tokenizer` may be null: then there is no text, and stop strings are refused. Runner,
  /// tokenizer and sinks outlive the engine.
  Engine(Runner& runner, const Tokenizer* tokenizer, const EngineOptions& options);
  ~Engine();

  /// The most tokens one sequence can have: the smallest of options.length_max and what the pools
  /// hold.
  std::int32_t length_max() const;

  /// Queues a request. Throws Error(usage) at once when it can never run: an empty prompt, a token
  /// id outside the vocabulary, a prompt of more than length_max() - 1 tokens (says by how much),
  /// max_tokens or sampling parameters out of range, stop strings without a tokenizer.
  RequestId submit(Request request, Sink& sink);

  /// Ends a request: its sequences give everything back, its sink hears FinishReason::cancelled for
  /// each choice that had not ended, before this returns (from inside a sink: soon after). Does
  /// nothing when the request has ended already.
  void cancel(RequestId request);

  /// One call of the runner. False when there was nothing to do. When the runner throws, that
  /// leaves this call too; no request is lost: their memory is released, and the next step() starts
  /// to recompute it from the tokens.
  bool step();

  bool idle() const;             ///< no request is unfinished, no event undelivered
  std::int32_t running() const;  ///< sequences that hold memory
  std::int32_t waiting() const;  ///< sequences that do not

  /// Checks that every page and slot is where the books say. Throws on a bug of ours.
  void audit() const;

 private:
  struct Books;
  std::unique_ptr<Books> books_;
};

}  // namespace hyb
