#include "app/options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/sampling.h"
#include "core/base/strings.h"
#include "core/io/file.h"

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

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  std::transform(small.begin(), small.end(), small.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return small;
}

constexpr const char* graphs_help =
    "on a card: what is recorded as CUDA graphs: full (steps of one token per sequence and its "
    "drafts), piecewise (steps with prompts, whose shapes come again), full+piecewise (the "
    "default) or eager (nothing)";

}  // namespace

MemoryBudget parse_memory(const std::string& text, const char* flag) {
  MemoryBudget budget{.text = text};
  if (text == MemoryBudget{}.text) return budget;
  const std::size_t digits = text.find_first_not_of("0123456789.");
  const auto number = parse_number<double>(std::string_view(text).substr(0, digits));
  const std::string unit =
      digits == std::string::npos ? "" : in_small_letters(std::string_view(text).substr(digits));
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

CLI::Option* add_size_option(CLI::App& cli, const char* name,
                             std::function<void(MemoryBudget)> take, const char* help) {
  return cli.add_option_function<std::string>(
      name,
      [name, take = std::move(take)](const std::string& text) { take(parse_memory(text, name)); },
      help);
}

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

void add_model_flag(CLI::App& cli, std::string& model) {
  cli.add_option("-m,--model", model, "the model, in place of the word MODEL")->type_name("MODEL");
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
             "activations and packed weights: auto (bf16 where config.json says bfloat16, else "
             "f32), bf16 (rounds weights of float16 and float32, once) or f32 (exact; float16 "
             "weights stay float16)");
  add_choice(cli, "--quantize", options.types.quantize, words::quantize,
             "linear weights and experts, while loading: none (as published), q8 (8.5 bits; "
             "answers hardly change) or q4 (4.5 bits; answers change); the head becomes q8, "
             "routers and an embedding for itself stay as they are; without files, and with "
             "--random-weights, also fp8 or mxfp4 (experts alone), as if published so");
  add_choice(cli, "--lossless", options.types.lossless, words::lossless,
             "bf16 weights in 12 bits of memory, the same answers: on, off (16 bits) or auto (on "
             "where it is faster, on the CPU with up to 16 sequences at once, or where memory is "
             "short)");
  add_choice(cli, "--kv-dtype", options.types.kv, words::kv_dtype,
             "keys and values: auto (as --dtype), bf16, f32 or fp8 (F8_E4M3 with scale 1, half of "
             "bf16); less than --dtype may change answers");
  add_choice(cli, "--state-dtype", options.types.state, words::state_dtype,
             "recurrent states: auto (config.json, else f32), f32 or bf16; bf16 halves them "
             "and may change answers");
  cli.add_option("--page-tokens", options.types.page_tokens, "tokens in a page: 16, 32, 64 or 128")
      ->check(CLI::IsMember({16, 32, 64, 128}))
      ->capture_default_str();
}

void add_chat_template_option(CLI::App& cli, std::string& choice, const std::string& more) {
  cli.add_option("--chat-template" + more, choice,
                 "a chat template in place of the model's default: a Jinja file, or the name of "
                 "another of the model's own")
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
             "auto (a usable card, else the CPU), cpu or cuda");
  cli.add_flag("--batch-invariant", options.batch_invariant,
               "on a card: an answer does not depend on what else runs, on chunks and on reuse; "
               "slower. Without it answers are the same in every run of the same requests. On the "
               "CPU it is always so");
  cli.add_option("-t,--threads", options.threads, "compute threads; 0: all this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  cli.add_option("-c,--context,--ctx-size", options.context,
                 "most tokens of a sequence, prompt and answer; 0: the model's, as far as it fits")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  add_size_option(
      cli, "--memory", [&options](MemoryBudget size) { options.memory = std::move(size); },
      "bounds all that hyb holds: 8GiB, 500MB, 80%, or auto")
      ->default_str(options.memory.text);
  add_size_option(
      cli, "--pool-memory",
      [&options](MemoryBudget size) { options.pool_memory = std::move(size); },
      "bounds the pools of pages and states alone: 2GiB, 500MB, 10%, or auto");
  add_type_options(cli, options);
  cli.add_option("--random-weights", options.types.random_weights,
                 "synthetic weights from this seed; needs only config.json")
      ->check(check_seed);
}

void add_pool_options(CLI::App& cli, PoolOptions& options) {
  add_choice(cli, "--memory-mode", options.mode, words::memory_mode,
             "how memory moves between pages and states: flip (mapped for both), remap (mapped "
             "again when it moves), flat (pools that never change, no prefix is kept) or auto "
             "(flip on a card, remap on the CPU)");
  cli.add_flag(
      "--strict-vmm", options.strict_vmm,
      "with --memory-mode flip: memory is mapped for its owner alone, stray access faults");
}

void add_chunk_option(CLI::App& cli, std::int32_t& chunk_tokens) {
  cli.add_option("-u,--ubatch,--ubatch-size", chunk_tokens,
                 "most prompt tokens of a sequence in one step; 0: 512, on a card by its speed and "
                 "memory")
      ->check(CLI::Range(0, chunk_tokens_limit))
      ->capture_default_str();
}

CLI::Option* add_system_option(CLI::App& cli, std::string& system, const std::string& help) {
  constexpr std::size_t bytes_max = std::size_t{16} << 20;
  CLI::Option* const option = cli.add_option("--system,--system-prompt", system, help);
  cli.add_option_function<std::string>(
         "--system-file",
         [&system](const std::string& file) { system = read_text_file(file, bytes_max); },
         "a file that holds the system prompt")
      ->type_name("FILE")
      ->excludes(option);
  return option;
}

std::string bytes_text(std::size_t bytes) {
  constexpr const char* names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(names)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, names[unit]);
}

std::string parameters_text(std::int64_t parameters) {
  const auto count = static_cast<double>(parameters);
  return parameters < 1'000'000'000 ? fmt::format("{:.2f} M", count / 1e6)
                                    : fmt::format("{:.2f} B", count / 1e9);
}

void add_reuse_options(CLI::App& cli, ReuseOptions& options) {
  add_choice(cli, "--prefix-cache", options.prefixes, words::on_off,
             "keep prefixes of prompts, so that they are not prefilled again");
  add_choice(
      cli, "--snapshots", options.snapshots, words::snapshots,
      "snapshots of recurrent state: exact, or int8, which holds about four times as many and "
      "changes answers a little");
  cli.add_flag("--audit", options.audit, "check all memory accounting after every step: slow");
  cli.add_option("--record", options.record,
                 "write the requests as a trace for hyb replay: lengths and what prompts have in "
                 "common, no text")
      ->type_name("FILE");
}

void add_speculation_options(CLI::App& cli, SpeculationFlags& flags) {
  flags.is_heeded = true;
  add_choice(
      cli, "--spec", flags.source, words::spec,
      "tokens are guessed and verified several in a step, with the same answers: ngram "
      "(from text that repeats itself or an earlier prompt), mtp (by the draft layer "
      "that Qwen3-Next, Qwen3.5 and some Nemotron have), draft, eagle3 and dflash (by "
      "--draft-model: a smaller model, or an EAGLE-3 or DFlash head), off, or auto (by "
      "--draft-model where it is given, mtp where the files have it, else ngram, as far as it "
      "pays: on the CPU, and on a card with --batch-invariant)");
  cli.add_option("--draft-model", flags.draft_model,
                 "what guesses: a smaller model with the same vocabulary, whose likeliest tokens "
                 "it are, or the folder of an EAGLE-3 or DFlash head that was trained for this "
                 "model")
      ->type_name("MODEL");
  add_choice(cli, "--draft-steps", flags.draft_steps, words::draft_steps,
             "most guesses of an answer in a step, one after the other: 1 to 7, or auto, which "
             "goes by how many were right and by the times of steps");
  cli.add_option("--draft-branches", flags.branches,
                 "with --draft-steps N: up to this many tokens are tried in one place, each in a "
                 "branch of its own")
      ->check(CLI::Range(1, tree_branches_max))
      ->capture_default_str();
  cli.add_option("--draft-tokens", flags.rows,
                 "most tokens that a step runs of an answer with --draft-branches: the one before "
                 "the guesses too, which every branch runs again, with what it shares (default: "
                 "twice what the guesses take without branches)")
      ->check(CLI::Range(2, tree_rows_max));
}

void add_lane_options(CLI::App& cli, LaneFlags& flags) {
  cli.add_flag(
      "--disaggregate", flags.is_on,
      "prompts run beside answers, in the same memory: on the CPU in a process with threads of its "
      "own, on a card in a stream of its own; with two cards one is for prompts. Long prompts hold "
      "up no answer, and where they share a device take longer themselves; the answers are the "
      "same");
  cli.add_option("--prefill-threads", flags.prefill_threads,
                 "with --disaggregate on the CPU: threads for prompts; default: half of --threads")
      ->check(CLI::Range(1, 1024));
  cli.add_option("--decode-threads", flags.decode_threads,
                 "with --disaggregate on the CPU: threads for answers; default: the other half")
      ->check(CLI::Range(1, 1024));
  cli.add_option("--prefill-device", flags.prefill_device,
                 "with --disaggregate: where prompts run and have their memory: cpu, cuda0, cuda1. "
                 "From one card to another, each sequence is copied as its answer begins; default: "
                 "cpu, or the second card");
  cli.add_option("--decode-device", flags.decode_device,
                 "with --disaggregate: where answers run and have their memory: cpu, cuda0, cuda1; "
                 "default: cpu, or the first card");
}

void add_think_option(CLI::App& cli, std::optional<bool>& think) {
  add_choice(
      cli, "--think", think, words::on_off,
      "whether the model thinks before it answers: enable_thinking for the chat template, which "
      "decides without it. Some models take it from the system prompt instead (/think, "
      "/no_think)");
}

void add_thoughts_option(CLI::App& cli, std::optional<bool>& shown) {
  static constexpr Words<bool, 2> words = {{{"show", true}, {"hide", false}}};
  add_choice(cli, "--thoughts", shown, words,
             "whether thoughts are shown with answers: show (the default on a terminal) or hide "
             "(where stdout is not one, so that it carries answers and nothing else)");
}

}  // namespace hyb::app
