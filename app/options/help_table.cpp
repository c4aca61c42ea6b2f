#include "app/options/help.h"

#include <algorithm>
#include <array>
#include <string>

namespace hyb::app {
namespace {

constexpr std::array option_groups = {
    HelpGroup{"input", "Input and output",
              " --model --prompt --prompt-file --no-stdin --messages --system --system-file "
              "--chat-template --tools --think --thoughts --markdown --raw --allow-special "
              "--truncate --json "
              "--verbose --output --parallel --format --output-format --template --order --ordered "
              "--ignore-fields --validate --part --merge --force --retry-failed --history "
              "--no-history --session "
              "--continue --repetitions --plot --requests --prompts --length --policy --budget "
              "--shape --report --against --windows --calibrate "},
    HelpGroup{
        "sampling", "How tokens are drawn, and where an answer ends",
        " --max-tokens --temperature --top-k --top-p --min-p --top-n-sigma "
        "--repetition-penalty --frequency-penalty --presence-penalty --seed --logit-bias "
        "--stop --ignore-eos --choices --logprobs --json-schema --json-object --regex --one-of "
        "--grammar "},
    HelpGroup{"memory", "Memory, and the types that decide how much is needed",
              " --context --memory --dtype --quantize --kv-dtype --prefix-cache --disk-tier "
              "--session-size "},
    HelpGroup{"drafts", "Drafts: tokens are guessed and verified, with the same answers",
              " --spec --draft-model --draft-steps "},
    HelpGroup{"cards", "Cards and threads",
              " --device --threads --batch-invariant --disaggregate --host-tier "},
    HelpGroup{"kernels", "Tests of the model alone"},
    HelpGroup{"requests", "Requests under load (--dataset-name or --preset)"},
    HelpGroup{"tuning", "Tuning: hardly ever needed",
              " --ubatch --lossless --state-dtype --page-tokens --random-weights --graphs "
              "--snapshots --memory-mode --pool-memory --memory-idle --strict-vmm --audit --record "
              "--draft-branches --draft-tokens --prefill-device --decode-device --prefill-threads "
              "--decode-threads --disk-tier-folder --retry-seconds --ranks --block --ratio "
              "--sglang-states --prefill-flops "},
    HelpGroup{"messages", "Messages", " --help --version --config "},
};

constexpr std::array command_helps = {
    CommandHelp{"hyb", " --help --version ", {"hyb chat", "hyb run \"What is 12 plus 30?\""}},
    CommandHelp{
        "batch",
        " --output --parallel --format --template --output-format --system --max-tokens "
        "--temperature --json-schema --ordered --retry-failed --validate --quantize --memory ",
        {"hyb batch Qwen/Qwen3-0.6B requests.jsonl -o answers.jsonl",
         "hyb batch demo questions.txt -o answers.txt --output-format text"}},
    CommandHelp{"bench",
                " --n-prompt --n-gen --n-depth --batch --repetitions --output --plot --threads "
                "--quantize --dataset-name --preset --max-concurrency ",
                {"hyb bench Qwen/Qwen3-0.6B -p 512 -n 128 -d 0,4096",
                 "hyb bench demo --dataset-name random --max-concurrency 1,4"}},
    CommandHelp{"chat",
                " --prompt --system --continue --session --no-history --think --max-tokens "
                "--temperature --seed --context --memory --quantize --device ",
                {"hyb chat", "hyb chat ~/models/granite-4.0-h-350m --session story"}},
    CommandHelp{"compare",
                "",
                {"hyb bench compare before.json after.json",
                 "hyb bench compare before.json after.json --threshold 2"}},
    CommandHelp{"completion",
                "",
                {"eval \"$(hyb completion bash)\"",
                 "hyb completion fish > ~/.config/fish/completions/hyb.fish"}},
    CommandHelp{"doctor", "", {"hyb doctor", "hyb doctor --json"}},
    CommandHelp{"eval",
                " --against --context --windows --snapshots --quantize --dtype --kv-dtype --memory "
                "--device --threads --json ",
                {"hyb eval Qwen/Qwen3-0.6B novel.txt",
                 "hyb eval Qwen/Qwen3-0.6B novel.txt --quantize q4 --against Qwen/Qwen3-0.6B"}},
    CommandHelp{"fit",
                " --context --parallel --memory --quantize --dtype --kv-dtype --device --threads "
                "--json --verbose ",
                {"hyb fit granite-4.0-h-350m", "hyb fit qwen3.5-0.8b -c 32768 --memory 8GiB"}},
    CommandHelp{"inspect",
                "",
                {"hyb inspect ~/models/granite-4.0-h-350m --check",
                 "hyb inspect qwen3.5-0.8b --quantize q4"}},
    CommandHelp{"list", "", {"hyb list", "hyb list --json"}},
    CommandHelp{"manual", "", {"hyb manual run | man -l -", "hyb manual > hyb.1"}},
    CommandHelp{"quantize",
                " --output --format --calibrate --windows --threads ",
                {"hyb quantize Qwen/Qwen3-0.6B -o qwen3-0.6b-int4",
                 "hyb quantize Qwen/Qwen3-0.6B -o qwen3-nvfp4 --format nvfp4"}},
    CommandHelp{"render",
                "",
                {"hyb render \"What is 12 plus 30?\" --system \"Be short.\"",
                 "hyb render --messages messages.json --tokens"}},
    CommandHelp{"replay",
                " --policy --budget --snapshots --host-tier --shape --kv-dtype --order "
                "--memory-mode --report --plot --threads --json ",
                {"hyb replay trace.jsonl --budget 2GB,6GB",
                 "hyb replay trace.jsonl --shape qwen3.5-0.8b --plot hits.svg"}},
    CommandHelp{
        "run",
        " --prompt --prompt-file --messages --system --max-tokens --temperature --seed --think "
        "--json-schema --json --context --quantize --device ",
        {"hyb run \"What is 12 plus 30?\"",
         "git diff | hyb run Qwen/Qwen3-0.6B \"Summarise this patch.\""}},
    CommandHelp{"sessions", "", {"hyb sessions show last", "hyb sessions export last chat.md"}},
    CommandHelp{"tokenize",
                "",
                {"hyb tokenize \"What is 12 plus 30?\"", "hyb tokenize --decode \"275 2\""}},
    CommandHelp{"verify",
                " --requests --prompts --max-tokens --length --seed --snapshots --quantize "
                "--context --memory --device --threads --json ",
                {"hyb verify", "hyb verify Qwen/Qwen3-0.6B --requests requests.jsonl"}},
};

std::size_t find_option(std::string_view list, std::string_view option) {
  return list.find(" " + std::string(option) + " ");
}

}  // namespace

std::span<const HelpGroup> help_groups() { return option_groups; }

std::string_view listed_group(std::string_view option) {
  const auto* const found =
      std::find_if(option_groups.begin(), option_groups.end(), [&](const HelpGroup& group) {
        return find_option(group.options, option) != std::string_view::npos;
      });
  return found == option_groups.end() ? std::string_view() : found->name;
}

std::optional<std::size_t> CommandHelp::place_of(std::string_view option,
                                                 std::string_view group) const {
  if (usual.empty() && group != "tuning" && group != "messages") return 1;
  const std::size_t place = find_option(usual, option);
  return place == std::string_view::npos ? std::nullopt : std::optional(place + 1);
}

CommandHelp command_help(std::string_view command) {
  const auto* const found =
      std::find_if(command_helps.begin(), command_helps.end(),
                   [&](const CommandHelp& help) { return help.command == command; });
  return found == command_helps.end() ? CommandHelp{command, "", {}} : *found;
}

}  // namespace hyb::app
