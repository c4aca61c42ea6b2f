#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/model_source.h"
#include "core/base/dtype.h"
#include "core/base/json.h"
#include "core/engine/draft_tree.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace hyb {
struct ParameterRange;
}

namespace hyb::app {

/// A byte budget: "8GiB", "500MB", "80%" (of the machine's memory), "auto" (what is free now, less
/// room for the machine).
struct MemoryBudget {
  enum class Kind : std::uint8_t { automatic, bytes, share } kind = Kind::automatic;
  std::size_t bytes = 0;
  double share = 0.0;
};

/// Throws Error(usage) naming the flag and the text. GB = 1e9, GiB and G = 2^30, in large or small
/// letters.
MemoryBudget parse_memory(const std::string& text, const char* flag = "--memory");

/// What is cached of prompts.
struct ReuseOptions {
  std::string prefixes = "on";      ///< on or off
  std::string snapshots = "exact";  ///< exact or int8
  std::string eviction = "gd";      ///< gd or lru: what is evicted first where memory is short
  bool audit = false;
  std::string record;                 ///< a file for the trace; empty: none is written
  std::optional<double> state_share;  ///< EngineOptions'; of bench alone
};

/// How memory is shared between pages and states.
struct PoolOptions {
  /// auto, flip, remap or flat. Auto is flip on a card, and on the CPU remap, the faster one there:
  /// aliases need shared memory, which has no huge pages by default (reads at 0.73 to 0.98 of a
  /// plain buffer's), and many mappings at start.
  std::string mode = "auto";
  bool strict_vmm = false;
};

/// Drafts of tokens, which are verified and never change an answer.
struct SpeculationFlags {
  std::string source = "auto";  ///< auto, off, ngram, mtp, eagle3, dflash or draft
  std::string draft_model;      ///< as ModelOptions::model, or a head; empty: none
  std::string drafts = "auto";  ///< of an answer in a step, one after the other: auto, 1 to 7
  std::int32_t branches = 1;    ///< tokens that are tried in one place; more than 1: a tree
  std::int32_t rows = 0;        ///< TreeLimits::rows; 0: twice what the drafts alone take
  bool is_heeded = false;       ///< else auto loads no draft layer

  /// source, where a draft model is what auto takes: "draft", also where that is a head. Throws
  /// Error(usage) where the two disagree.
  std::string kind() const;
  /// Whether kind() is by draft_model.
  bool has_draft_model() const;
  /// branches and rows. Throws Error(usage) where they do not go with drafts.
  TreeLimits tree() const;
};

/// Prompts beside answers, each with threads or a card's streams of their own.
struct LaneFlags {
  bool is_on = false;
  int prefill_threads = 0, decode_threads = 0;  ///< 0: not given
  /// Of each lane: "cpu" or a card: "cuda0", "cuda1"; in tests "cpu:1", another memory of the same
  /// CPU. Empty: not given.
  std::string prefill_device = {}, decode_device = {};
};

/// Most prompt tokens of a step that --ubatch takes.
inline constexpr int chunk_tokens_limit = 65536;

/// What every command that opens a model takes.
struct ModelOptions {
  std::string model = "demo";
  std::string chat_template;    ///< a file, or the name of one of the model's; empty: its default
  std::string device = "auto";  ///< auto (a usable card, else the CPU), cpu or cuda
  int threads = 0;              ///< 0: all this process may use
  std::int32_t context = 0;     ///< most tokens of one sequence; 0: the model's, as far as it fits
  std::int32_t chunk_tokens = 0;  ///< prompt tokens of one sequence in one step; 0: MemoryPlan's
  std::string memory = "auto";
  std::string pool_memory;                      ///< empty: what --memory leaves
  std::string dtype = "auto";                   ///< auto, bf16 or f32
  std::string quantize = "none";                ///< none, q8, q4, or of random weights fp8, mxfp4
  std::string lossless = "auto";                ///< auto, on or off: bf16 weights in 12 bits
  std::string kv_dtype = "auto";                ///< auto (as the activations), bf16, f32, fp8
  std::string state_dtype = "auto";             ///< auto (what config.json says), f32 or bf16
  std::int32_t page_tokens = 16;                ///< 16, 32, 64 or 128
  bool batch_invariant = false;                 ///< on a card; on the CPU always
  std::string graphs;                           ///< on a card; empty: full+piecewise
  std::optional<std::uint64_t> random_weights;  ///< synthetic weights from a seed
  ReuseOptions reuse;
  PoolOptions pools;
  SpeculationFlags speculation;
  LaneFlags lanes;
};

/// A check of an option by the table that requests in files are checked by.
CLI::Validator in_range(const ParameterRange& range);

/// A check for options of 64-bit numbers, decimal: CLI11 would wrap a negative one around and take
/// the largest for one that is larger.
std::string check_seed(const std::string& text);

inline constexpr const char* model_help =
    "folder, org/name[@revision] in the Hugging Face cache, or demo";

/// Adds -m/--model. `model` outlives `cli`.
void add_model_flag(CLI::App& cli, std::string& model);

/// Adds -m/--model and MODEL (positional, optional), of which one at most may be given.
void add_model_option(CLI::App& cli, std::string& model, const std::string& help);

/// Adds --system and --system-file, of which one at most may be given; returns the first. `system`
/// outlives `cli`. Throws Error(model) while parsing where the file can't be read.
CLI::Option* add_system_option(CLI::App& cli, std::string& system, const std::string& help);

/// Adds MODEL (positional, optional), -m and the common flags. The options outlive `cli`.
void add_model_options(CLI::App& cli, ModelOptions& options, bool positional_model = true);

/// Adds --chat-template, of commands that render conversations; `more` are other names of it.
void add_chat_template_option(CLI::App& cli, std::string& choice, const std::string& more = {});

/// Adds --graphs, of commands that run a model: one mode, or a list of them.
void add_graphs_option(CLI::App& cli, std::string& mode);
void add_graphs_option(CLI::App& cli, std::vector<std::string>& modes);

/// Adds those of commands that open a session: --memory-mode, --strict-vmm.
void add_pool_options(CLI::App& cli, PoolOptions& options);

/// Adds -u/--ubatch, of commands that open a session or plan one; bench has a flag of its own.
void add_chunk_option(CLI::App& cli, std::int32_t& chunk_tokens);

/// Adds those that sizes in memory depend on: --dtype, --quantize, --kv-dtype, --state-dtype,
/// --page-tokens.
void add_type_options(CLI::App& cli, ModelOptions& options);

/// "12.3 MiB", "680 MB" style text for people. Binary units.
std::string bytes_text(std::size_t bytes);

/// "340.33 M", "8.00 B".
std::string parameters_text(std::int64_t parameters);

/// Adds those of commands that serve prompts: --prefix-cache, --snapshots, --audit, --record. The
/// options outlive `cli`.
void add_reuse_options(CLI::App& cli, ReuseOptions& options);

/// Adds --spec, --draft-steps and what belongs to them, of commands that answer prompts. The flags
/// outlive `cli`.
void add_speculation_options(CLI::App& cli, SpeculationFlags& flags);

/// Adds --disaggregate, --prefill-threads and --decode-threads, of commands that answer several
/// prompts. The flags outlive `cli`.
void add_lane_options(CLI::App& cli, LaneFlags& flags);

/// Whether a model is to think before it answers; nothing: what its chat template does by itself.
using Think = std::optional<bool>;

/// Adds --think on|off; `think` outlives `cli`.
void add_think_option(CLI::App& cli, Think& think);

/// "on", "off" or "default".
std::string_view name_of(Think think);

/// What name_of() names; nothing: another word.
std::optional<Think> parse_think(std::string_view word);

/// Adds --thoughts show|hide; `shown` outlives `cli`; empty: not given.
void add_thoughts_option(CLI::App& cli, std::optional<bool>& shown);

/// What the template gets to see: enable_thinking and thinking, the two names in use.
Json think_variables(Think think);

/// Throws Error(usage) that begins with `flag` where the template makes the same prompt of either,
/// so that asking for one would change nothing.
void check_think(Think think, const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                 std::string_view flag);

/// Throws Error(usage) where a body from `file` sets a variable of --think, too.
void check_think_alone(Think think, const Json& body, const std::string& file);

/// --think, of a model whose weights were not read yet.
void check_think(Think think, const ModelSource& source);

}  // namespace hyb::app
