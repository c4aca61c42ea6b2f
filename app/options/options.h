#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/options/words.h"
#include "core/base/dtype.h"
#include "core/base/json.h"
#include "core/engine/draft_tree.h"
#include "core/memory/pool/memory.h"
#include "core/memory/prefix/snapshot_policy.h"
#include "kernels/arena/superblock_map.h"
#include "kernels/device.h"
#include "models/recordings.h"

namespace CLI {
class Validator;
}

namespace hyb {
struct ParameterRange;
}

namespace hyb::app {

/// A byte budget: "8GiB", "500MB", "80%" (of the machine's memory), "auto" (what is free now, less
/// room for the machine).
struct MemoryBudget {
  enum class Kind : std::uint8_t { automatic, bytes, share } kind = Kind::automatic;
  std::size_t bytes = 0;  ///< of a share and of auto: known once it is resolved
  double share = 0.0;
  std::string text = "auto";  ///< as it was given
};

/// Throws Error(usage) naming the flag and the text. GB = 1e9, GiB and G = 2^30, in large or small
/// letters.
MemoryBudget parse_memory(const std::string& text, const char* flag = "--memory");

/// Format that linear weights and experts are converted to while they are loaded, or published in.
enum class QuantizeChoice : std::uint8_t { none, q8, q4, fp8, mxfp4 };

/// Source of guessed tokens.
enum class DraftSource : std::uint8_t { automatic, off, ngram, mtp, eagle3, dflash, draft };

namespace words {

inline constexpr Words<bool, 2> on_off = {{{"on", true}, {"off", false}}};
inline constexpr Words<std::optional<kernels::Device>, 3> device = {
    {{"auto", std::nullopt}, {"cpu", kernels::Device::cpu}, {"cuda", kernels::Device::cuda}}};
inline constexpr Words<std::optional<DType>, 3> dtype = {
    {{"auto", std::nullopt}, {"bf16", DType::bf16}, {"f32", DType::f32}}};
inline constexpr Words<std::optional<DType>, 4> kv_dtype = {
    {{"auto", std::nullopt}, {"bf16", DType::bf16}, {"f32", DType::f32}, {"fp8", DType::f8_e4m3}}};
inline constexpr Words<std::optional<DType>, 3> state_dtype = {
    {{"auto", std::nullopt}, {"f32", DType::f32}, {"bf16", DType::bf16}}};
inline constexpr Words<QuantizeChoice, 5> quantize = {{{"none", QuantizeChoice::none},
                                                       {"q8", QuantizeChoice::q8},
                                                       {"q4", QuantizeChoice::q4},
                                                       {"fp8", QuantizeChoice::fp8},
                                                       {"mxfp4", QuantizeChoice::mxfp4}}};
inline constexpr Words<std::optional<bool>, 3> lossless = {
    {{"auto", std::nullopt}, {"on", true}, {"off", false}}};
inline constexpr Words<Precision, 2> snapshots = {
    {{"exact", Precision::exact}, {"int8", Precision::int8}}};
inline constexpr Words<EvictionRule, 2> eviction = {
    {{"gd", EvictionRule::greedy_dual}, {"lru", EvictionRule::lru}}};
inline constexpr Words<std::optional<kernels::MapMode>, 4> memory_mode = {
    {{"auto", std::nullopt},
     {"flip", kernels::MapMode::flip},
     {"remap", kernels::MapMode::remap},
     {"flat", kernels::MapMode::flat}}};
inline constexpr Words<DraftSource, 7> spec = {{{"auto", DraftSource::automatic},
                                                {"off", DraftSource::off},
                                                {"ngram", DraftSource::ngram},
                                                {"mtp", DraftSource::mtp},
                                                {"eagle3", DraftSource::eagle3},
                                                {"dflash", DraftSource::dflash},
                                                {"draft", DraftSource::draft}}};
/// The words of --draft-steps; 0: as it pays.
inline constexpr Words<std::int32_t, 8> draft_steps = {
    {{"auto", 0}, {"1", 1}, {"2", 2}, {"3", 3}, {"4", 4}, {"5", 5}, {"6", 6}, {"7", 7}}};
inline constexpr Words<models::GraphOptions, 4> graphs = {
    {{"eager", {.decode = false, .mixed = false}},
     {"piecewise", {.decode = false, .mixed = true}},
     {"full", {.decode = true, .mixed = false}},
     {"full+piecewise", {.decode = true, .mixed = true}}}};

}  // namespace words

/// Options of what is cached of prompts.
struct ReuseOptions {
  bool prefixes = true;
  Precision snapshots = Precision::exact;
  EvictionRule eviction = EvictionRule::greedy_dual;  ///< where memory is short
  bool audit = false;
  std::string record = {};                 ///< a file for the trace; empty: none is written
  std::optional<double> state_share = {};  ///< EngineOptions'; of bench alone
};

/// Options of how pages and states share memory.
struct PoolOptions {
  /// None: flip on a card, and on the CPU remap, the faster one there: aliases need shared memory,
  /// which has no huge pages by default (reads at 0.73 to 0.98 of a plain buffer's), and many
  /// mappings at start.
  std::optional<kernels::MapMode> mode;
  bool strict_vmm = false;
};

/// Drafts of tokens, which are verified and never change an answer.
struct SpeculationFlags {
  DraftSource source = DraftSource::automatic;
  std::string draft_model;       ///< as ModelOptions::model, or a head; empty: none
  std::int32_t draft_steps = 0;  ///< of an answer in a step, one after the other: 1 to 7; 0: auto
  std::int32_t branches = 1;     ///< tokens that are tried in one place; more than 1: a tree
  std::int32_t rows = 0;         ///< TreeLimits::rows; 0: twice what the drafts alone take
  bool is_heeded = false;        ///< else auto loads no draft layer
};

/// Prompts beside answers, each with threads or a card's streams of their own.
struct LaneFlags {
  bool is_on = false;
  int prefill_threads = 0, decode_threads = 0;  ///< 0: not given
  /// Device of each lane: "cpu" or a card, as "cuda0"; in tests also "cpu:1", another memory of the
  /// same CPU. Empty if not given.
  std::string prefill_device = {}, decode_device = {};
};

/// The types of weights and of what a sequence keeps, before a model says what "auto" is.
struct TypeOptions {
  std::optional<DType> activation = {};  ///< bf16 or f32; none: the model's
  QuantizeChoice quantize = QuantizeChoice::none;
  std::optional<bool> lossless = {};  ///< bf16 weights in 12 bits; none: WeightUse decides
  std::optional<DType> kv = {};       ///< none: as activations
  std::optional<DType> state = {};    ///< none: what config.json says
  std::int32_t page_tokens = 16;      ///< 16, 32, 64 or 128
  std::optional<std::uint64_t> random_weights = {};  ///< synthetic weights from a seed
};

/// Most prompt tokens of a step that --ubatch takes.
inline constexpr int chunk_tokens_limit = 65536;

/// Options of every command that opens a model, as typed; resolve() (app/runtime/run_settings.h)
/// turns them into settings for a model on this machine.
struct ModelOptions {
  std::string model = "demo";
  std::string chat_template;  ///< a file, or the name of one of the model's; empty: its default
  std::optional<kernels::Device> device;  ///< none: a usable card, else the CPU
  int threads = 0;                        ///< 0: all this process may use
  std::int32_t context = 0;  ///< most tokens of one sequence; 0: the model's, as far as it fits
  std::int32_t chunk_tokens = 0;  ///< prompt tokens of one sequence in one step; 0: MemoryPlan's
  MemoryBudget memory;
  std::optional<MemoryBudget> pool_memory;  ///< none: what --memory leaves
  TypeOptions types;
  bool batch_invariant = false;                ///< on a card; on the CPU always
  std::optional<models::GraphOptions> graphs;  ///< on a card; none: everything
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
    "a folder, a GGUF file, org/name[@revision][:TAG] in the Hugging Face cache, a name that "
    "ollama uses (gemma3:270m), or demo";

/// Adds -m/--model. `model` outlives `cli`.
void add_model_flag(CLI::App& cli, std::string& model);

/// Takes the words [MODEL] FILE: returns FILE, and changes `model` where there is a MODEL. Throws
/// Error(usage) where -m is given beside it.
const std::string& take_file_word(const CLI::App& cli, const std::vector<std::string>& words,
                                  std::string& model);

/// Adds -m/--model and MODEL (positional, optional), of which one at most may be given.
void add_model_option(CLI::App& cli, std::string& model, const std::string& help);

/// Adds MODEL (positional, optional), -m and the common flags. The options outlive `cli`.
void add_model_options(CLI::App& cli, ModelOptions& options, bool positional_model = true);

/// Adds --chat-template, of commands that render conversations; `more` are other names of it.
void add_chat_template_option(CLI::App& cli, std::string& choice, const std::string& more = {});

/// Adds --graphs, of commands that run a model: one mode, or a list of them.
void add_graphs_option(CLI::App& cli, std::optional<models::GraphOptions>& mode);
void add_graphs_option(CLI::App& cli, std::vector<std::optional<models::GraphOptions>>& modes);

/// Adds those of commands that open a session: --memory-mode, --strict-vmm.
void add_pool_options(CLI::App& cli, PoolOptions& options);

/// Adds -u/--ubatch, of commands that open a session or plan one; bench has a flag of its own.
void add_chunk_option(CLI::App& cli, std::int32_t& chunk_tokens);

/// Adds those that sizes in memory depend on: --dtype, --quantize, --kv-dtype, --state-dtype,
/// --page-tokens.
void add_type_options(CLI::App& cli, ModelOptions& options);

/// Adds those of commands that serve prompts: --prefix-cache, --snapshots, --audit, --record. The
/// options outlive `cli`.
void add_reuse_options(CLI::App& cli, ReuseOptions& options);

/// Adds --spec, --draft-steps and what belongs to them, of commands that answer prompts. The flags
/// outlive `cli`.
void add_speculation_options(CLI::App& cli, SpeculationFlags& flags);

/// Adds --disaggregate, --prefill-threads and --decode-threads, of commands that answer several
/// prompts. The flags outlive `cli`.
void add_lane_options(CLI::App& cli, LaneFlags& flags);

/// Adds --think on|off; `think` outlives `cli`.
void add_think_option(CLI::App& cli, std::optional<bool>& think);

/// Adds --thoughts show|hide; `shown` outlives `cli`; empty: not given.
void add_thoughts_option(CLI::App& cli, std::optional<bool>& shown);

}  // namespace hyb::app
