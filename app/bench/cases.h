#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/recordings.h"
#include "models/roofline.h"

namespace hyb::app {

/// Numbers as llama-bench writes them: "512", "128,512", "256-1024+256" (every 256),
/// "64-4096*2" (doubling), "4-8" (each), joined by commas; every text of `texts` adds to the list.
/// Throws Error(usage) naming `option` for anything else, for numbers outside 0 to 2^24, and for
/// more than 1000 numbers.
std::vector<std::int32_t> parse_counts(std::span<const std::string> texts, std::string_view option);

/// "PP,TG". Throws Error(usage) naming `option`.
std::pair<std::int32_t, std::int32_t> parse_pair(const std::string& text, std::string_view option);

/// Modes of --graphs, each of which has rows of its own; none: no card.
using GraphModes = std::vector<std::optional<models::GraphOptions>>;

/// The word of --graphs; empty: none.
std::string graphs_text(const std::optional<models::GraphOptions>& mode);

/// One row of the benchmark: `batch` sequences of `depth` tokens take in `prompt` tokens, one
/// after the other, then draw `generate` tokens, all at once.
struct BenchCase {
  std::int32_t prompt = 0;
  std::int32_t generate = 0;
  std::int32_t depth = 0;
  std::int32_t batch = 1;
  std::optional<models::GraphOptions> graphs = {};  ///< on a card

  /// "pp512", "tg128", "pp512+tg128", followed by " @ d4096".
  std::string name() const;

  /// Returns the length of one sequence.
  std::int32_t length() const { return depth + prompt + generate; }

  /// Returns the tokens that a rate counts: prompt and generated tokens of all sequences.
  std::int64_t tokens() const { return std::int64_t{batch} * (std::int64_t{prompt} + generate); }

  bool operator==(const BenchCase&) const = default;
};

/// Cases to be measured: every depth with every prompt, every generation and every pair;
/// generations and pairs with every batch; all in every mode. Zeros are skipped.
struct BenchGrid {
  std::vector<std::int32_t> prompts, generations, depths, batches;
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs = {};  ///< PP, TG
  GraphModes graphs = {std::nullopt};
};

std::vector<BenchCase> cases_of(const BenchGrid& grid);

/// One call of the runner: the same span for sequences `first` to first + shape.sequences - 1.
struct BenchStep {
  std::int32_t first;
  models::StepShape shape;
};

/// The steps that bring one sequence from position `from` to the case's depth; no logits are
/// wanted.
std::vector<BenchStep> depth_steps(const BenchCase& test, std::int32_t sequence, std::int32_t from,
                                   std::int32_t chunk_tokens);

/// The steps that are timed. Logits are computed for the last prompt token and for every generated
/// one.
std::vector<BenchStep> timed_steps(const BenchCase& test, std::int32_t chunk_tokens);

/// Source of a workload's requests; the names are those of the command line.
enum class Dataset : std::uint8_t {
  random,                   ///< prompts of random tokens
  generated_shared_prefix,  ///< groups of prompts after a system prompt each, in random order
  send_one,                 ///< one prompt
  corpus,                   ///< prompts cut out of a text file
  file,                     ///< the requests of a batch file
  trace                     ///< a trace of `hyb replay`
};

/// Says what the engine has cached of a row's prompts when the row begins.
enum class Condition : std::uint8_t {
  cold,   ///< nothing
  warm,   ///< all of each prompt but its last token; of shared prefixes the system prompts
  turn_2  ///< the prompt and its answer: what is measured is the next turn of the conversation
};

/// "random", "generated-shared-prefix", ... and "cold", "warm", "turn-2".
std::string_view name_of(Dataset dataset);
std::string_view name_of(Condition condition);

/// Throws Error(usage) that lists what there is.
Dataset parse_dataset(const std::string& name);
std::vector<Condition> parse_conditions(const std::vector<std::string>& names);

/// The places where prompts run: in chunks among answers, or beside them in a lane of their own.
inline constexpr std::string_view colocated_lanes = "colocated",
                                  disaggregated_lanes = "disaggregated";

/// A row's policy that keeps no prefix, and its drafts where there are none.
inline constexpr std::string_view no_policy = "none", no_drafts = "off";

/// One row: a workload and how it is offered.
struct RequestCase {
  Dataset dataset = Dataset::random;
  Condition condition = Condition::cold;
  std::int32_t prompts = 0;  ///< requests; of shared prefixes, prompts of a group
  std::int32_t groups = 0;
  std::int32_t system_tokens = 0;  ///< of the prefix that a group shares, or all prompts
  std::int32_t input_tokens = 0;   ///< of a prompt, without that prefix
  std::int32_t output_tokens = 0;
  std::int32_t concurrency = 0;  ///< most requests at once; 0: no limit
  double request_rate = std::numeric_limits<double>::infinity();  ///< per second
  std::optional<models::GraphOptions> graphs = {};                ///< on a card
  std::string policy;  ///< of the prefix tree; empty: what the session was opened with
  /// "off", or the share of drafts that are right, "0.89"; empty: as --spec says.
  std::string spec_acceptance = {};
  /// colocated_lanes or disaggregated_lanes; empty: as --disaggregate says.
  std::string lanes = {};

  /// The share of drafts that are made right; none: drafts are off, or what --spec says.
  std::optional<double> right_drafts() const;

  /// Every request goes out as soon as there is room: the clients wait for the engine. Else they
  /// come at their own pace, whatever the engine does.
  bool is_closed_loop() const { return concurrency > 0 && std::isinf(request_rate); }

  /// "random 1024+128", "generated-shared-prefix 50x10x10240+256+128", "trace".
  std::string workload() const;
  /// "closed loop, 8 at once", "open loop, 4/s, 8 at once".
  std::string experiment() const;

  bool operator==(const RequestCase&) const = default;
};

/// Lists of values for the fields of a case that a command line varies; empty: the field stays.
struct RequestGrid {
  std::vector<std::int32_t> prompts, groups, system_tokens, input_tokens, output_tokens;
  std::vector<std::int32_t> concurrencies;
  std::vector<double> request_rates = {};
  std::vector<Condition> conditions;
  GraphModes graphs;
  std::vector<std::string> policies, spec_acceptances, lanes;
};

/// Every combination; lanes vary fastest, then drafts, conditions, policies, graphs, concurrencies
/// and rates, then sizes.
std::vector<RequestCase> cases_of(const RequestCase& base, const RequestGrid& grid);

/// "inf", "4,8", "0.5". Throws Error(usage).
std::vector<double> parse_rates(const std::string& text);

}  // namespace hyb::app
