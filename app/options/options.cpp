#include "app/options/options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/base/sampling.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

/// In small letters: capital ones mean the same.
constexpr std::array byte_units = {
    Unit{"", 1},         Unit{"b", 1},        Unit{"kb", 1e3},     Unit{"mb", 1e6},
    Unit{"gb", 1e9},     Unit{"tb", 1e12},    Unit{"kib", 0x1p10}, Unit{"mib", 0x1p20},
    Unit{"gib", 0x1p30}, Unit{"tib", 0x1p40}, Unit{"k", 0x1p10},   Unit{"m", 0x1p20},
    Unit{"g", 0x1p30},   Unit{"t", 0x1p40},
};

constexpr const char* graphs_help =
    "on a card: which steps are recorded as CUDA graphs; default: full+piecewise. full: steps of "
    "one token per sequence and its drafts; piecewise: steps with prompts, whose shapes come "
    "again; eager: none";

}  // namespace

MemoryBudget parse_memory(const std::string& text, const char* flag) {
  MemoryBudget budget{.text = text};
  if (text == MemoryBudget{}.text) return budget;
  const std::size_t digits = text.find_first_not_of("0123456789.");
  const auto number = parse_number<double>(std::string_view(text).substr(0, digits));
  const std::string unit = digits == std::string::npos ? "" : in_small_letters(text.substr(digits));
  if (number && std::isfinite(*number) && *number > 0) {
    if (unit == "%" && *number <= 100) {
      budget.kind = MemoryBudget::Kind::share;
      budget.share = *number / 100;
      return budget;
    }
    for (const Unit& known : byte_units) {
      if (unit == known.name && *number * known.bytes < 0x1p62) {
        budget.kind = MemoryBudget::Kind::bytes;
        budget.bytes = static_cast<std::size_t>(*number * known.bytes);
        return budget;
      }
    }
  }
  throw Error(ErrorKind::usage, std::string(flag) + ": '" + text +
                                    "' is not a size like 8GiB, 500MB or 80%, and not auto");
}

namespace {

/// Adds an option that takes a size.
CLI::Option* add_size_option(CLI::App& cli, const char* name,
                             std::function<void(MemoryBudget)> take, const char* help) {
  return cli
      .add_option_function<std::string>(
          name,
          [name, take = std::move(take)](const std::string& text) {
            take(parse_memory(text, name));
          },
          help)
      ->type_name("SIZE");
}

}  // namespace

CLI::Validator in_range(const ParameterRange& range) {
  return {[range](const std::string& text) {
            const auto number = parse_number<double>(text);
            if (!number || range.has(*number))
              return std::string();  // CLI11 names what is not a number
            return fmt::format("is {}, got {}", range.text(), text);
          },
          range.text()};
}

std::string check_seed(const std::string& text) {
  if (parse_number<std::uint64_t>(text)) return {};
  return fmt::format("is a whole number, {}; got {}", seed_range_text, text);
}

CLI::Option* add_word_option(CLI::App& cli, const char* names,
                             std::span<const std::string_view> words, std::string_view usual,
                             std::function<void(std::size_t)> take, const std::string& help) {
  const std::vector<std::string> known(words.begin(), words.end());
  return cli
      .add_option_function<std::string>(
          names,
          [known, take = std::move(take)](const std::string& word) {
            const auto found = std::find(known.begin(), known.end(), word);
            take(static_cast<std::size_t>(found - known.begin()));
          },
          help)
      ->check(CLI::IsMember(known))
      ->default_str(std::string(usual));
}

/// config.json's and other tools' words for types become ours.
std::string take_type_name(std::string& word) {
  if (word == "bfloat16") word = "bf16";
  if (word == "float32" || word == "float") word = "f32";
  return {};
}

void add_model_flag(CLI::App& cli, std::string& model) {
  cli.add_option("-m,--model", model, "the model; the same as the word MODEL")->type_name("MODEL");
}

const std::string& take_file_word(const CLI::App& cli, const std::vector<std::string>& words,
                                  std::string& model) {
  if (words.size() == 1) return words.front();
  if (cli.count("--model") > 0) {
    throw Error(ErrorKind::usage, "the model is given twice: as a word and with -m");
  }
  model = words.front();
  return words.back();
}

void add_model_option(CLI::App& cli, std::string& model, const std::string& help) {
  add_model_flag(cli, model);
  cli.add_option("model", model, help)
      ->type_name("MODEL")
      ->excludes(cli.get_option("--model"))
      ->capture_default_str();
}

void add_type_options(CLI::App& cli, ModelOptions& options) {
  add_choice(cli, "--dtype", options.types.activation, words::dtype,
             "type of activations and of packed weights. auto: bf16 for GGUF files and where "
             "config.json says bfloat16, else f32. bf16 rounds float16 and float32 weights once; "
             "f32 is exact, and "
             "float16 weights stay float16")
      ->transform(CLI::Validator(take_type_name, "", "type"));
  add_choice(cli, "--quantize", options.types.quantize, words::quantize,
             "pack weights while loading: q8 (answers hardly change) or q4 (they change). Linear "
             "weights and experts take 8.5 and 4.5 bits; the output head becomes q8, routers and a "
             "separate embedding stay as they are. Without files, and with --random-weights, also "
             "fp8 or mxfp4 (experts alone), as if published so");
  add_choice(cli, "--lossless", options.types.lossless, words::lossless,
             "keep bf16 weights in 12 bits of memory; the answers are the same. auto: on where it "
             "is faster (on the CPU, with up to 16 sequences at once) or where memory is short");
  add_choice(cli, "--kv-dtype", options.types.kv, words::kv_dtype,
             "type of keys and values; auto: as --dtype. fp8 (F8_E4M3 with scale 1) takes half of "
             "bf16. A smaller type than --dtype may change answers");
  add_choice(cli, "--state-dtype", options.types.state, words::state_dtype,
             "type of recurrent states; auto: config.json's, else f32. bf16 takes half of f32 and "
             "may change answers");
  cli.add_option("--page-tokens", options.types.page_tokens, "tokens in a page of keys and values")
      ->check(CLI::IsMember({16, 32, 64, 128}))
      ->capture_default_str();
}

void add_chat_template_option(CLI::App& cli, std::string& choice, const std::string& more) {
  cli.add_option(
         "--chat-template" + more, choice,
         "use this chat template: a Jinja file, or the name of another template of the model")
      ->type_name("FILE");
}

void add_graphs_option(CLI::App& cli, std::optional<models::GraphOptions>& mode) {
  add_choice(cli, "--graphs", mode, words::graphs, graphs_help);
}

void add_graphs_option(CLI::App& cli, std::vector<std::optional<models::GraphOptions>>& modes) {
  std::vector<std::string> known;
  for (const auto& one : words::graphs) known.emplace_back(one.word);
  cli.add_option_function<std::vector<std::string>>(
         "--graphs",
         [&modes](const std::vector<std::string>& given) {
           modes.clear();
           for (const std::string& word : given) modes.push_back(value_of(words::graphs, word));
         },
         std::string(graphs_help) + "; of a list each row is measured in each")
      ->check(CLI::IsMember(known))
      ->delimiter(',')
      ->allow_extra_args(false);
}

void add_model_options(CLI::App& cli, ModelOptions& options, bool positional_model) {
  if (positional_model) {
    add_model_option(cli, options.model, model_help);
  }
  add_choice(cli, "--device", options.device, words::device,
             "where the model runs; auto: a usable card, else the CPU");
  cli.add_flag("--batch-invariant", options.batch_invariant,
               "on a card: an answer depends neither on what else runs nor on chunks and reuse; "
               "slower. Without it, answers are the same in every run of the same requests. On the "
               "CPU it is always so");
  cli.add_option("-t,--threads", options.threads,
                 "threads that compute; 0: all that this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  cli.add_option("-c,--context,--ctx-size", options.context,
                 "most tokens of a sequence, prompt and answer together; 0: as many as the model "
                 "has and fit")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  add_size_option(
      cli, "--memory", [&options](MemoryBudget size) { options.memory = std::move(size); },
      "most memory that hyb holds: 8GiB, 500MB, 80%, or auto. auto: what is free now, less some "
      "room for the machine")
      ->default_str(options.memory.text);
  add_size_option(
      cli, "--pool-memory",
      [&options](MemoryBudget size) { options.pool_memory = std::move(size); },
      "most memory of the pools of pages and states alone: 2GiB, 500MB, 10%, or auto");
  add_type_options(cli, options);
  cli.add_option("--random-weights", options.types.random_weights,
                 "synthetic weights from this seed; config.json is enough")
      ->check(check_seed);
}

void add_pool_options(CLI::App& cli, PoolOptions& options) {
  add_choice(cli, "--memory-mode", options.mode, words::memory_mode,
             "how memory moves between pages and states; auto: flip on a card, remap on the CPU. "
             "flip: it is mapped for both; remap: it is mapped again when it moves; flat: pools of "
             "fixed sizes, and no prefix is kept");
  cli.add_flag(
      "--strict-vmm", options.strict_vmm,
      "with --memory-mode flip: map memory for its owner alone, so that stray accesses fault");
}

void add_chunk_option(CLI::App& cli, std::int32_t& chunk_tokens) {
  cli.add_option("-u,--ubatch,--ubatch-size", chunk_tokens,
                 "most prompt tokens of a sequence in one step; 0: 512, on a card as suits its "
                 "speed and memory")
      ->check(CLI::Range(0, chunk_tokens_limit))
      ->capture_default_str();
}

void add_reuse_options(CLI::App& cli, ReuseOptions& options) {
  add_choice(cli, "--prefix-cache", options.prefixes, words::on_off,
             "keep prefixes of prompts, so that they need not run again");
  add_choice(cli, "--snapshots", options.snapshots, words::snapshots,
             "how snapshots of recurrent states are kept. int8 holds about four times as many as "
             "exact and changes answers a little");
  cli.add_flag("--audit", options.audit, "check all memory accounting after every step; slow");
  cli.add_option(
         "--record", options.record,
         "write a trace of the requests for hyb replay: lengths and what prompts share, no text")
      ->type_name("FILE");
}

void add_speculation_options(CLI::App& cli, SpeculationFlags& flags) {
  flags.is_heeded = true;
  add_choice(
      cli, "--spec", flags.source, words::spec,
      "what guesses tokens, several of which are then verified in one step; the answers are the "
      "same. ngram: text that repeats itself or an earlier prompt. mtp: the draft layer of "
      "Qwen3-Next, Qwen3.5 and some Nemotron models. draft, eagle3, dflash: --draft-model. auto: "
      "--draft-model where it is given, else mtp where the files have it, else ngram, as far as it "
      "pays (on the CPU, and on a card with --batch-invariant)");
  cli.add_option("--draft-model", flags.draft_model,
                 "the model that guesses: a smaller one with the same vocabulary, or the folder of "
                 "an EAGLE-3 or DFlash head that was trained for this model")
      ->type_name("MODEL");
  add_choice(cli, "--draft-steps", flags.draft_steps, words::draft_steps,
             "most guesses in a row that a step verifies; auto: by how many were right and how "
             "long steps take");
  cli.add_option("--draft-branches", flags.branches,
                 "with --draft-steps N: most tokens that are tried in one place, each in a branch "
                 "of its own")
      ->check(CLI::Range(1, tree_branches_max))
      ->capture_default_str();
  cli.add_option("--draft-tokens", flags.rows,
                 "with --draft-branches: most tokens of an answer that a step runs; default: twice "
                 "as many as without branches. Every branch counts the token before the guesses, "
                 "and what it shares with others, again")
      ->check(CLI::Range(2, tree_rows_max));
}

void add_lane_options(CLI::App& cli, LaneFlags& flags) {
  cli.add_flag(
      "--disaggregate", flags.is_on,
      "run prompts beside answers, so that long prompts hold up no answer; the answers are the "
      "same. On the CPU prompts have a process and threads of their own, on a card a stream, of "
      "two cards one. Where they share a device with answers, they take longer");
  cli.add_option("--prefill-threads", flags.prefill_threads,
                 "with --disaggregate on the CPU: threads for prompts; default: half of --threads")
      ->check(CLI::Range(1, 1024));
  cli.add_option("--decode-threads", flags.decode_threads,
                 "with --disaggregate on the CPU: threads for answers; default: the other half")
      ->check(CLI::Range(1, 1024));
  cli.add_option("--prefill-device", flags.prefill_device,
                 "with --disaggregate: where prompts run and keep their memory: cpu, cuda0 or "
                 "cuda1; default: cpu, or the second card. From one card to another, each sequence "
                 "is copied as its answer begins");
  cli.add_option("--decode-device", flags.decode_device,
                 "with --disaggregate: where answers run and keep their memory: cpu, cuda0 or "
                 "cuda1; default: cpu, or the first card");
}

void add_think_option(CLI::App& cli, std::optional<bool>& think) {
  add_choice(cli, "--think", think, words::on_off,
             "whether the model thinks before it answers; default: as its chat template decides. "
             "The template gets it as enable_thinking; some models read /think or /no_think in the "
             "system prompt instead");
}

void add_thoughts_option(CLI::App& cli, std::optional<bool>& shown) {
  static constexpr Words<bool, 2> words = {{{"show", true}, {"hide", false}}};
  add_choice(cli, "--thoughts", shown, words,
             "show thoughts with answers, or hide them. Default: show on a terminal, hide "
             "elsewhere, so that stdout carries answers only");
}

}  // namespace hyb::app
