#include "app/options/command_line.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

struct Spelling {
  std::string_view typed, option;
  std::string_view command;  ///< where it is one; empty: everywhere
};

constexpr std::array one_dash_options = {
    Spelling{"-pg", "--pg", "bench"},  // as llama-bench has it
    Spelling{"-np", "--parallel", ""}, Spelling{"-sys", "--system", ""},
    Spelling{"-sysf", "--system-file", ""}, Spelling{"-ub", "--ubatch", ""}};

/// Options and commands that people know from other tools, and what to use here.
struct Advice {
  std::string_view names;  ///< each between spaces
  const char* text;
  std::string_view command = {};  ///< for which it is; empty: for all

  bool is_for(std::string_view name, std::string_view typed) const {
    return names.find(fmt::format(" {} ", name)) != std::string_view::npos &&
           (command.empty() || command == typed);
  }
};

constexpr std::array foreign_options = {
    Advice{" -ngl --gpu-layers --n-gpu-layers ",
           "a model is on one device as a whole: --device cuda or --device cpu; --device auto, the "
           "default, takes the card where there is one"},
    Advice{" -hf -hfr --hf-repo --hf-file -mu --model-url ",
           "nothing is downloaded; MODEL is a folder, a GGUF file, or org/name[:Q4_K_M] in the "
           "Hugging Face cache"},
    Advice{" -i --input-file --output-file ",
           "the file of requests is a word: hyb batch [MODEL] IN -o OUT", "batch"},
    Advice{" serve latency throughput ",
           "here options say what is measured: hyb bench MODEL -p 32 -n 128 -b 8 (latency), "
           "--dataset-name random --request-rate inf (throughput) or 1 (serve)",
           "bench"},
    Advice{" -cnv --conversation -i --interactive ", "hyb chat is the conversation"},
    Advice{" -no-cnv --no-conversation -st --single-turn ",
           "hyb run answers one prompt and ends, hyb chat is the conversation"},
    Advice{" -mg --main-gpu ", "CUDA_VISIBLE_DEVICES=N chooses the card"},
    Advice{" --mlock --mmap --no-mmap --numa ",
           "weights are read into memory once; leave it out (numactl chooses where hyb runs)"},
    Advice{" --n --best-of ", "several answers to a prompt are --json --choices N"},
    Advice{" --json-schema-file --grammar-file --response-format ",
           "what an answer must be is --json-schema FILE, --json-object, --grammar FILE, --regex "
           "or --one-of"},
    Advice{" -fa --flash-attn ", "attention never holds its whole matrix; there is no switch"},
    Advice{" -ctk -ctv --cache-type-k --cache-type-v ",
           "keys and values have one type: --kv-dtype bf16, f32 or fp8"},
    Advice{" -tp --tensor-parallel-size --pipeline-parallel-size -sm --split-mode -ts ",
           "a model is on one device; it is not divided"},
    Advice{" --max-model-len ", "here it is --context TOKENS"},
    Advice{" -b --batch-size --max-num-batched-tokens ",
           "prompt tokens of one step are --ubatch TOKENS"},
    Advice{" --gpu-memory-utilization ", "here it is --memory: 80%, or a size like 60GiB"},
    Advice{" --enforce-eager ", "here it is --graphs eager"},
    Advice{" --enable-prefix-caching ", "prefixes are kept by default; --prefix-cache off"},
    Advice{" --trust-remote-code ", "no code of a model folder is ever run; leave it out"},
    Advice{" --jinja ", "the chat template is always used; --raw goes without"},
    Advice{" --host --port --api-key ", "there is no server; hyb batch answers files of requests"},
    Advice{" --concurrency ", "requests answered at once are --parallel N"},
    Advice{" --kv-cache-dtype ", "here it is --kv-dtype bf16, f32 or fp8"},
    Advice{" --no-display-prompt -e --escape ",
           "the prompt is taken as it is and never printed; leave it out"},
    Advice{" --lora --image --mmproj -mm ",
           "hyb runs the text of whole models, without adapters and pictures"},
};

constexpr std::array foreign_commands = {
    Advice{" serve server start api api_server ",
           "hyb has no server: hyb batch answers a file of requests, hyb run one prompt, hyb chat "
           "talks"},
    Advice{" pull download get fetch install ",
           "hyb downloads nothing: fetch a model with `hf download org/name`, and hyb finds it in "
           "the Hugging Face cache; hyb list shows what is there"},
    Advice{" ls ps models tags ", "hyb list shows the models that are there"},
    Advice{" show info ", "hyb inspect MODEL shows what a model is made of"},
    Advice{" rm delete remove ", "hyb removes no models; hyb list shows where they are"},
    Advice{" generate complete prompt ask cli ", "hyb run MODEL \"PROMPT\" answers one prompt"},
    Advice{" logs history ", "hyb sessions lists the saved chats"},
    Advice{
        " convert create ",
        "hyb reads the folders that Hugging Face publishes and GGUF files; hyb quantize writes a "
        "folder in 4 or 8 bits"},
    Advice{" embed embeddings ", "hyb makes no embeddings"},
    Advice{" perplexity ppl evaluate ", "hyb eval MODEL FILE measures the perplexity of a text"},
};

template <typename Table>
const Advice* find_advice(const Table& table, std::string_view name,
                          std::string_view command = {}) {
  const auto* const found = std::find_if(table.begin(), table.end(), [&](const Advice& advice) {
    return advice.is_for(name, command);
  });
  return found == table.end() ? nullptr : found;
}

bool is_option_word(std::string_view word) { return word.size() > 1 && word.front() == '-'; }

/// "--threads" of "--threads=3".
std::string option_name(std::string_view word) {
  return std::string(word.substr(0, word.find('=')));
}

std::vector<const CLI::App*> all_commands(const CLI::App& cli) {
  const auto all = cli.get_subcommands([](const CLI::App*) { return true; });
  return {all.begin(), all.end()};
}

bool has_option(const CLI::App& command, const std::string& name) {
  return command.get_option_no_throw(name) != nullptr;
}

std::string nearest_option(const CLI::App& command, std::string_view name) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& one : option->get_lnames()) known.push_back("--" + one);
  }
  return std::string(nearest_name(name, known));
}

/// "hyb bench and hyb verify have it"; empty: no command does.
std::string other_commands_with(const CLI::App& cli, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* command : all_commands(cli)) {
    if (has_option(*command, name)) names.push_back("hyb " + command->get_name());
  }
  if (names.empty()) return "";
  if (names.size() == 1) return names.front() + " has it";
  const std::string last = names.back();
  names.pop_back();
  return fmt::format("{} and {} have it", fmt::join(names, ", "), last);
}

std::string about_option(const CLI::App& cli, const CLI::App& command, std::string_view word) {
  const std::string name = option_name(word);
  if (const Advice* advice = find_advice(foreign_options, name, command.get_name())) {
    return fmt::format("{}: {}", name, advice->text);
  }
  if (has_option(command, name)) return name + ": comes after the command";
  const std::string nearest = nearest_option(command, name);
  if (!nearest.empty()) return fmt::format("{}: unknown option, the nearest is {}", name, nearest);
  const std::string others = other_commands_with(cli, name);
  if (others.empty()) return name + ": unknown option";
  return fmt::format("{}: no option of {}; {}", name, typed_name_of(command), others);
}

/// CLI11's own text, but where it counts values instead of saying that an option is repeated, does
/// not say what is wanted, or names an argument by our word for it.
std::string about_error(const std::string& text) {
  constexpr std::string_view unreadable = "Could not convert: ", missing = " is required";
  if (text.starts_with(unreadable)) {
    const std::string_view rest = std::string_view(text).substr(unreadable.size());
    const std::size_t equals = rest.find(" = ");
    if (equals != std::string_view::npos) {
      return fmt::format("'{}' is not a number that {} takes", rest.substr(equals + 3),
                         rest.substr(0, equals));
    }
  }
  if (text.ends_with(missing) && !text.starts_with('-')) {
    std::string name = text.substr(0, text.size() - missing.size());
    for (char& letter : name) letter = static_cast<char>(std::toupper(letter));
    return name + " is missing";
  }
  constexpr std::string_view repeated = ": At Most 1 required but received ";
  const std::size_t at = text.find(repeated);
  if (at == std::string::npos) return text;
  return fmt::format("{} is given {} times; it takes one value", text.substr(0, at),
                     text.substr(at + repeated.size()));
}

std::string about_command(const CLI::App& cli, const std::string& word) {
  if (const Advice* advice = find_advice(foreign_commands, word)) return advice->text;
  std::vector<std::string> known;
  for (const CLI::App* command : all_commands(cli)) known.push_back(command->get_name());
  const std::string_view nearest = nearest_name(word, known);
  if (!nearest.empty()) {
    return fmt::format("'{}' is not a command; the nearest is {}", word, nearest);
  }
  if (word.find_first_of(white_space) != std::string::npos) {
    return "a prompt needs a command: hyb run -p \"PROMPT\"";
  }
  const bool is_model = word.find('/') != std::string::npos || word == "demo";
  return is_model
             ? fmt::format("a model needs a command: hyb chat {0} or hyb run {0} \"PROMPT\"", word)
             : fmt::format("'{}' is not a command", word);
}

/// Says what a command line without a command may have meant.
std::string about_no_command(const CLI::App& cli, const std::vector<std::string>& unknown) {
  const auto word = std::find_if_not(unknown.begin(), unknown.end(), is_option_word);
  if (!unknown.empty() && is_option_word(unknown.front())) {
    const std::string name = option_name(unknown.front());
    const std::string others = other_commands_with(cli, name);
    if (others.empty()) return about_option(cli, cli, name);
    return fmt::format("{} comes after a command: hyb run {} ... answers a prompt, hyb chat talks",
                       name, name);
  }
  return word == unknown.end() ? "a command is missing: hyb chat talks, hyb run \"PROMPT\" answers"
                               : about_command(cli, *word);
}

/// Names the words that nothing took, in the order typed, which CLI11's own texts do not keep.
std::string about_unknown(const CLI::App& cli, const CLI::App& command,
                          const std::vector<std::string>& unknown) {
  std::vector<std::string> texts;
  for (const std::string& word : unknown) {
    if (is_option_word(word)) texts.push_back(about_option(cli, command, word));
  }
  // The values of unknown options look like arguments too many.
  if (texts.empty()) {
    texts.push_back(fmt::format(
        "'{}' is one argument too many{}", unknown.front(),
        has_option(command, "--prompt") ? "; a prompt of several words goes into quotes" : ""));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

/// The first word that is a command: it may follow --log-level and its value.
std::string first_command(const CLI::App& cli, const std::vector<std::string>& words) {
  const auto commands = all_commands(cli);
  const auto found = std::find_if(words.begin(), words.end(), [&](const std::string& word) {
    return std::ranges::count(commands, word, &CLI::App::get_name) > 0;
  });
  return found == words.end() ? "" : *found;
}

}  // namespace

std::string typed_name_of(const CLI::App& command) {
  return command.get_parent() == nullptr
             ? command.get_name()
             : typed_name_of(*command.get_parent()) + " " + command.get_name();
}

const CLI::App& typed_command(const CLI::App& cli) {
  const std::vector<CLI::App*> parsed = cli.get_subcommands();
  return parsed.empty() ? cli : typed_command(*parsed.back());
}

std::vector<std::string> command_words(const CLI::App& cli, int argc, const char* const* argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const std::string command = first_command(cli, words);
  const auto has = [&](const char* word) {
    return std::ranges::count(words, std::string(word)) > 0;
  };
  if (command == "bench" && has("-b") && has("-ub")) {  // a command line of llama-bench
    throw Error(ErrorKind::usage,
                "-b: counts sequences at once, and llama-bench's -b means nothing here: -ub alone "
                "bounds a step; --batch N measures N sequences");
  }
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    std::string& word = words[i];
    if (word == "--color" && !(i + 1 < words.size() && value_of(colours, words[i + 1]))) {
      word = "--color=always";
    }
    const bool is_kind = i > 0 && words[i - 1] == "bench" && command == "bench";
    if (!is_kind && (!is_option_word(word) || word[1] == '-')) continue;
    for (const Spelling& spelling : one_dash_options) {
      if (word != spelling.typed) continue;
      if (spelling.command.empty() || spelling.command == command) word = spelling.option;
    }
    const Advice* advice = word.size() > 2 ? find_advice(foreign_options, word, command) : nullptr;
    if (advice != nullptr) throw Error(ErrorKind::usage, fmt::format("{}: {}", word, advice->text));
  }
  if (!words.empty() && words.front() == "help") {
    words.front() = "--help";
    if (words.size() > 1) std::swap(words[0], words[1]);
  }
  if (!words.empty() && words.front() == "version") words.front() = "--version";
  return words;
}

std::string value_text(const CLI::ParseError& error) { return about_error(error.what()); }

std::string usage_text(const CLI::App& cli, const CLI::ParseError& error) {
  std::vector<std::string> unknown = cli.remaining(true);
  std::erase(unknown, "--");
  const CLI::App& command = typed_command(cli);
  std::string text;
  if (&command == &cli) {
    text = about_no_command(cli, unknown);
  } else if (!unknown.empty()) {
    text = about_unknown(cli, command, unknown);
  } else {
    text = value_text(error);
  }
  return fmt::format("{}; see {} --help", text, typed_name_of(command));
}

}  // namespace hyb::app
