#include "app/options/cli_outline.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "app/options/help.h"
#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

/// CLI11 writes the values of IsMember into the type: "TEXT:{auto,cpu,cuda}". Where others are
/// checked later, the type is "random|corpus".
std::vector<std::string> choices_in(const std::string& type) {
  std::vector<std::string> choices;
  const bool is_list = type.find('|') != std::string::npos;
  const std::size_t open = is_list ? std::string::npos : type.find('{');
  const std::size_t close = is_list ? type.size() : type.find('}');
  if (!is_list && (open == std::string::npos || close == std::string::npos)) return choices;
  for (std::size_t begin = open + 1; begin < close;) {
    const std::size_t end = std::min(type.find_first_of(",|", begin), close);
    choices.push_back(type.substr(begin, end - begin));
    begin = end + 1;
  }
  return choices;
}

/// Returns the range of a check in words: "INT in [1 - 8]", as CLI11 writes it, becomes "1 to 8".
/// Empty if any number passes, or the bounds are out of practical reach.
std::string range_in(std::string type) {
  if (type.find('{') != std::string::npos || type.find(':') == std::string::npos) return "";
  type.erase(0, type.find(':') + 1);
  if (const std::size_t open = type.find('['); open != std::string::npos) {
    const std::size_t dash = type.find(" - ", open), close = type.find(']');
    type =
        type.substr(open + 1, dash - open - 1) + " to " + type.substr(dash + 3, close - dash - 3);
  }
  const auto most = parse_number<double>(std::string_view(type).substr(type.rfind(' ') + 1));
  return most && *most < 1e6 ? type : "";
}

/// CLI11's name of a type as a person reads it.
std::string value_name(const std::string& type) {
  const std::string name = type.substr(0, type.find_first_of(": "));
  if (name == "INT" || name == "UINT") return "N";
  return name == "FLOAT" ? "X" : name;
}

/// Presets are models to them.
constexpr std::string_view commands_of_shapes = "bench fit inspect replay";

OptionOutline option_outline(const CLI::Option& option, const CommandHelp& command) {
  OptionOutline outline;
  for (const std::string& name : option.get_snames()) outline.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) outline.names.push_back("--" + name);
  const std::string type = option.get_type_name();
  if (outline.names.empty()) {
    outline.positional = option.get_option_text();
    if (outline.positional.empty())
      std::ranges::transform(option.get_name(), std::back_inserter(outline.positional), toupper);
  }
  outline.choices = choices_in(type);
  if (option.get_items_expected_max() > 0) outline.value = value_name(type);
  outline.takes_file = outline.value == "FILE" || outline.value == "MODEL";
  if (outline.value == "SESSION") outline.names_of = "sessions";
  if (outline.value == "MODEL") {
    const bool needs_no_weights =
        commands_of_shapes.find(command.command) != std::string_view::npos;
    outline.names_of = needs_no_weights ? "configurations" : "models";
  }
  if (!outline.choices.empty()) {
    (outline.names.empty() ? outline.positional : outline.value) =
        fmt::format("{}", fmt::join(outline.choices, "|"));
  }
  outline.is_list = option.get_items_expected_max() > 1;
  outline.help = option.get_description();
  outline.short_help = outline.help.substr(0, outline.help.find(". "));
  std::string limits = range_in(type), usual = option.get_default_str();
  if (usual.starts_with('[')) usual = usual.substr(1, usual.size() - 2);  // a list
  if (!usual.empty()) limits += (limits.empty() ? "default: " : "; default: ") + usual;
  for (std::string* const help : {&outline.help, &outline.short_help}) {
    if (!limits.empty()) *help += fmt::format(" ({})", limits);
  }
  const std::string long_name =
      option.get_lnames().empty() ? "" : outline.names[option.get_snames().size()];
  outline.group = option.get_group() == "Options" ? listed_group(long_name) : option.get_group();
  outline.usual_place = outline.names.empty() ? 0 : command.place_of(long_name, outline.group);
  outline.is_required = option.get_required();
  return outline;
}

std::string spaced(const std::vector<std::string>& words, std::string_view separator = " ") {
  return fmt::format("{}", fmt::join(words, separator));
}

std::vector<std::string> names_of(const std::vector<CommandOutline>& commands) {
  std::vector<std::string> names;
  for (const CommandOutline& command : commands) names.push_back(command.name);
  return names;
}

std::vector<std::string> flags_of(const CommandOutline& command) {
  std::vector<std::string> flags;
  for (const OptionOutline& option : command.options) {
    flags.insert(flags.end(), option.names.begin(), option.names.end());
  }
  return flags;
}

/// Calls `visit(path, command)` for the root (""), its commands ("bench") and theirs
/// ("bench compare").
template <typename Visit>
void for_each_command(const CommandOutline& command, const std::string& path, const Visit& visit) {
  visit(path, command);
  for (const CommandOutline& sub : command.commands) {
    for_each_command(sub, path.empty() ? sub.name : path + " " + sub.name, visit);
  }
}

}  // namespace

CommandOutline cli_outline(const CLI::App& cli) {
  CommandOutline all{.name = cli.get_name(),
                     .about = cli.get_description(),
                     .group = cli.get_group(),
                     .options = {},
                     .commands = {}};
  const CommandHelp help = command_help(all.name);
  for (const CLI::Option* const option :
       cli.get_options([](const CLI::Option* one) { return !one->get_group().empty(); })) {
    all.options.push_back(option_outline(*option, help));
  }
  for (const CLI::App* const sub : cli.get_subcommands([](const CLI::App*) { return true; })) {
    all.commands.push_back(cli_outline(*sub));
  }
  const auto help_flag = std::ranges::find(
      all.options, "-h,--help", [](const OptionOutline& one) { return spaced(one.names, ","); });
  if (help_flag != all.options.end()) {
    help_flag->choices = topics_of(all);
    help_flag->choices.emplace_back("all");
  }
  // The choices of `hyb manual` are known once all commands are.
  for (CommandOutline& command : all.commands) {
    if (command.name == "manual") command.options.front().choices = names_of(all.commands);
  }
  return all;
}

std::vector<OptionSection> sections_of(const CommandOutline& command, std::string_view topic) {
  std::vector<OptionSection> sections;
  const auto add = [&](std::string_view title, const auto& belongs) {
    OptionSection section = {.title = title, .options = {}};
    for (const OptionOutline& option : command.options) {
      if (belongs(option)) section.options.push_back(&option);
    }
    if (!section.options.empty()) sections.push_back(std::move(section));
  };
  const bool is_all = topic == "all";
  if (is_all || topic.empty()) {
    add("", [](const OptionOutline& option) { return option.usual_place.has_value(); });
    if (!sections.empty()) {
      std::ranges::stable_sort(sections.front().options, {}, &OptionOutline::usual_place);
    }
  }
  for (const HelpGroup& group : help_groups()) {
    add(group.title, [&](const OptionOutline& option) {
      return option.group == group.name && (is_all ? !option.usual_place : topic == group.name);
    });
  }
  add("Options without a group", [&](const OptionOutline& option) {
    return is_all && !option.usual_place && option.group.empty();
  });
  return sections;
}

std::string single_quoted(std::string_view text) {
  std::string all = "'";
  for (const char letter : text) {
    if (letter == '\'') {
      all += "'\\''";
    } else {
      all += letter;
    }
  }
  return all + "'";
}

namespace {

/// Returns the Bash code that completes a value: with one of a few words, with names, with files,
/// or, for any other kind, with nothing. `words` are offered with models.
std::string bash_values(const OptionOutline& option, const std::string& words = "") {
  if (!option.choices.empty()) return fmt::format("_hyb_words '{}'", spaced(option.choices));
  if (option.names_of.empty()) return option.takes_file ? "_hyb_files" : ":";
  return option.takes_file ? fmt::format("_hyb_models {} '{}'", option.names_of, words)
                           : "_hyb_names " + option.names_of;
}

/// Completes a positional by the number of words before it.
std::string bash_positional(const CommandOutline& command) {
  const std::string subs = spaced(names_of(command.commands));
  const bool has_model = std::ranges::count(flags_of(command), "--model") > 0;
  std::vector<std::string> values;
  for (const OptionOutline& option : command.options) {
    if (!option.names.empty()) continue;
    // [MODEL] FILE
    if (option.is_list && option.takes_file && has_model)
      values.push_back("_hyb_names models; _hyb_files");
    values.push_back(bash_values(option, values.empty() ? subs : ""));
    if (!option.is_list) continue;
    break;
  }
  if (values.empty()) return fmt::format("_hyb_words '{}'", subs);
  std::string text = "case $position in";
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    text += fmt::format(" {}) {} ;;", i, values[i]);
  }
  return values.size() == 1 ? values.front() : text + fmt::format(" *) {} ;; esac", values.back());
}

constexpr const char* bash_head = R"(# bash completion for hyb, written by: hyb completion bash

_hyb_words() {  # also those of a list with commas
  local list=
  [[ $current == *,* ]] && list=${current%,*},
  COMPREPLY=($(compgen -P "$list" -W "$1" -- "${current##*,}"))
}

_hyb_files() {
  compopt -o filenames
  mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current")
}

_hyb_names() {  # compgen -W would run what a name says
  local name
  while IFS= read -r name; do
    [[ $name == "$colon$current"* ]] && COMPREPLY+=("${name#"$colon"}")
  done < <("${COMP_WORDS[0]}" completion bash --names "$1" 2> /dev/null)
}

_hyb_models() {
  local -a paths
  _hyb_words "$2"
  _hyb_names "$1"
  [[ $colon ]] && return
  mapfile -t paths < <(compgen -S / -d -- "$current"; compgen -f -X '!*.gguf' -- "$current")
  COMPREPLY+=("${paths[@]}")
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == */ ]]; then compopt -o nospace; fi
}

_hyb() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local command= colon= i position=0
  COMPREPLY=()
  if [[ $current == [=:] ]]; then
    [[ $current == : ]] && colon=$previous: previous=${COMP_WORDS[COMP_CWORD - 2]}
    current=
  elif [[ $previous == = ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  elif [[ $previous == : ]]; then
    colon=${COMP_WORDS[COMP_CWORD - 2]}: previous=${COMP_WORDS[COMP_CWORD - 3]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command ${COMP_WORDS[i]}" in
)";

}  // namespace

std::string bash_completion(const CommandOutline& root) {
  std::string text = bash_head, values, words;
  for_each_command(root, "", [&](const std::string& path, const CommandOutline& command) {
    for (const CommandOutline& sub : command.commands) {
      const std::string full = path.empty() ? sub.name : path + " " + sub.name;
      text += fmt::format("      '{} {}') command='{}' ;;\n", path, sub.name, full);
    }
    for (const OptionOutline& option : command.options) {
      if (!option.names.empty() && (!option.is_flag() || !option.choices.empty())) {
        std::vector<std::string> patterns;
        for (const std::string& name : option.names) {
          patterns.push_back(fmt::format("'{} {}'", path, name));
        }
        values +=
            fmt::format("    {}) {}; return ;;\n", spaced(patterns, " | "), bash_values(option));
      }
    }
    words += fmt::format(
        "    '{}')\n"
        "      if [[ $current == -* ]]; then _hyb_words '{}'; else {}; fi ;;\n",
        path, spaced(flags_of(command)), bash_positional(command));
  });
  text +=
      "      *) [[ ${COMP_WORDS[i - 1]}${COMP_WORDS[i]} == *[=:]* || "
      "${COMP_WORDS[i - 1]} == -* || ${COMP_WORDS[i]} == -* ]] || ((position++)) ;;\n";
  text +=
      "    esac\n  done\n  [[ $colon ]] && ((position--))  # the name itself\n  case \"$command "
      "$previous\" in\n" +
      values + "  esac\n";
  return text + "  case $command in\n" + words + "  esac\n}\n\ncomplete -F _hyb hyb\n";
}

namespace {

/// Puts a backslash before each of `letters`.
std::string escaped(std::string_view text, std::string_view letters) {
  std::string all;
  for (const char letter : text) {
    if (letters.find(letter) != std::string_view::npos) all += '\\';
    all += letter;
  }
  return all;
}

/// ":VALUE:action" of _arguments. `words` are offered with names.
std::string zsh_value(const OptionOutline& option, const std::string& words = "") {
  const std::string label = option.positional.empty() ? option.value : option.positional;
  std::string action = " ";
  if (!option.choices.empty()) {
    action = fmt::format("({})", spaced(option.choices));
  } else if (!option.names_of.empty()) {
    const char* const paths =
        option.takes_file ? "; _path_files -/; _path_files -g \"*.gguf\"" : "";
    action = fmt::format("{{compadd -- {} ${{(f)\"$(hyb completion zsh --names {})\"}}{}}}", words,
                         option.names_of, paths);
  } else if (option.takes_file) {
    action = "_files";
  }
  return fmt::format(":{}:{}", escaped(label, ":"), action);
}

std::string zsh_arguments(const CommandOutline& command, std::string_view indent) {
  std::string text;
  for (const OptionOutline& option : command.options) {
    if (option.names.empty()) {
      text += fmt::format(" \\\n{}{}", indent,
                          single_quoted((option.is_list ? "*" : "") +
                                        zsh_value(option, spaced(names_of(command.commands)))));
      continue;
    }
    const std::string about = fmt::format("[{}]", escaped(option.help, "[]\\"));
    for (const std::string& name : option.names) {
      // "+": a short option's value may follow at once, "=": a long one's after "=".
      const std::string mark = option.is_flag() ? "" : name.starts_with("--") ? "=" : "+";
      const std::string value = !option.is_flag() ? zsh_value(option)
                                : option.choices.empty()
                                    ? ""  // else of --help, which needs none
                                    : fmt::format("::group:({})", spaced(option.choices));
      text += fmt::format(" \\\n{}{}", indent, single_quoted("*" + name + mark + about + value));
    }
  }
  return text;
}

std::string zsh_name(const std::string& path) {
  std::string name = "_hyb";
  for (const char letter : path.empty() ? path : " " + path) name += letter == ' ' ? '_' : letter;
  return name;
}

/// The function of the program itself: a command, then that command's function.
std::string zsh_root(const CommandOutline& root) {
  std::string commands, cases;
  for (const CommandOutline& sub : root.commands) {
    commands += fmt::format("        {}\n", single_quoted(sub.name + ":" + sub.about));
    cases += fmt::format("        {}) {} ;;\n", sub.name, zsh_name(sub.name));
  }
  return fmt::format(
      "_hyb() {{\n"
      "  local curcontext=$curcontext state line\n"
      "  local -A opt_args\n"
      "  _arguments -s -C{} \\\n    '1: :->command' \\\n    '*:: :->arguments'\n"
      "  case $state in\n"
      "    command)\n"
      "      local -a commands=(\n{}      )\n"
      "      _describe command commands ;;\n"
      "    arguments)\n"
      "      case $line[1] in\n{}      esac ;;\n"
      "  esac\n}}\n\n",
      zsh_arguments(root, "    "), commands, cases);
}

/// The function of a command; a word that names a command of its own hands over to that.
std::string zsh_function(const std::string& path, const CommandOutline& command) {
  std::string text = zsh_name(path) + "() {\n";
  for (const CommandOutline& sub : command.commands) {
    text += fmt::format(
        "  if (( $words[(I){0}] )); then\n"
        "    CURRENT=$(( CURRENT - $words[(i){0}] + 1 ))\n"
        "    words=(\"${{(@)words[(i){0},-1]}}\")\n"
        "    {1}\n"
        "    return\n"
        "  fi\n",
        sub.name, zsh_name(path + " " + sub.name));
  }
  return text + fmt::format("  _arguments -s{}\n}}\n\n", zsh_arguments(command, "    "));
}

}  // namespace

std::string zsh_completion(const CommandOutline& root) {
  std::string text = "#compdef hyb\n# zsh completion for hyb, written by: hyb completion zsh\n\n";
  for_each_command(root, "", [&](const std::string& path, const CommandOutline& command) {
    text += path.empty() ? zsh_root(command) : zsh_function(path, command);
  });
  return text + "if [ \"$funcstack[1]\" = _hyb ]; then _hyb \"$@\"; else compdef _hyb hyb; fi\n";
}

std::string fish_completion(const CommandOutline& root) {
  std::string text =
      "# fish completion for hyb, written by: hyb completion fish\n\n"
      "complete -c hyb -f\n";
  for_each_command(root, "", [&](const std::string& path, const CommandOutline& command) {
    std::string condition = "__fish_use_subcommand";
    if (!path.empty())
      condition = "__fish_seen_subcommand_from " + path.substr(path.rfind(' ') + 1);
    const std::string head = fmt::format("complete -c hyb -n {}", single_quoted(condition));
    for (const CommandOutline& sub : command.commands) {
      text +=
          fmt::format("{} -a {} -d {}\n", head, single_quoted(sub.name), single_quoted(sub.about));
    }
    for (const OptionOutline& option : command.options) {
      text += head;
      for (const std::string& name : option.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!option.choices.empty()) {
        text += fmt::format("{} -a {}", option.names.empty() ? "" : " -x",
                            single_quoted(spaced(option.choices)));
      } else if (option.takes_file) {
        text += option.names.empty() ? " -F" : " -r -F";
      } else if (!option.is_flag()) {
        text += option.names.empty() ? "" : " -x";
      }
      if (!option.names_of.empty()) {
        text += fmt::format(" -a '(hyb completion fish --names {})'", option.names_of);
      }
      text += fmt::format(" -d {}\n", single_quoted(option.help));
    }
  });
  return text;
}

namespace {

/// A text for roff: no line of it is a request, a dash is a minus.
std::string roff(std::string_view text) {
  std::string all;
  if (!text.empty() && (text.front() == '.' || text.front() == '\'')) all = "\\&";
  for (const char letter : text) {
    if (letter == '\\') {
      all += "\\e";
    } else if (letter == '-') {
      all += "\\-";
    } else {
      all += letter;
    }
  }
  return all;
}

std::string option_entry(const OptionOutline& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back("\\fB" + roff(name) + "\\fR");
  std::string text = ".TP\n";
  text += option.names.empty() ? "\\fI" + roff(option.positional) + "\\fR" : spaced(names, ", ");
  if (!option.names.empty() && !option.value.empty()) text += " \\fI" + roff(option.value) + "\\fR";
  return text + "\n" + roff(option.help) + "\n";
}

std::string option_entries(const CommandOutline& command) {
  std::string text;
  for (const OptionSection& section : sections_of(command, "all")) {
    if (!section.title.empty()) text += ".PP\n" + roff(section.title) + ":\n";
    for (const OptionOutline* const option : section.options) text += option_entry(*option);
  }
  return text;
}

struct ManEntry {
  const char* name;
  const char* text;
};

constexpr std::array exit_codes = {
    ManEntry{"0", "success"},
    ManEntry{"1", "failed while running"},
    ManEntry{"2", "usage: an unknown flag, a value out of range, flags that exclude each other"},
    ManEntry{"3", "a model or a file is damaged, missing or not supported"},
    ManEntry{"4", "does not fit into memory"},
    ManEntry{"5", "a batch is finished, some of its lines failed"},
    ManEntry{"6", "verification failed, or a benchmark became slower"},
    ManEntry{"130, 143", "stopped by SIGINT or SIGTERM"}};

constexpr std::array environment_variables = {
    ManEntry{"HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME",
             "where the Hugging Face cache is, in which org/name is looked up"},
    ManEntry{"OLLAMA_MODELS, LLAMA_CACHE", "where ollama and llama.cpp keep their GGUF files"},
    ManEntry{"XDG_STATE_HOME", "holds hyb/history, the entries of chats; else ~/.local/state"},
    ManEntry{"HYB_CONFIG, XDG_CONFIG_HOME",
             "the file of settings, or what holds hyb/config.toml; else ~/.config"},
    ManEntry{"XDG_DATA_HOME", "holds hyb/sessions, the saved chats; else ~/.local/share"},
    ManEntry{"NO_COLOR, CLICOLOR_FORCE, FORCE_COLOR", "switch colors off or on"}};

constexpr std::array files_of_users = {
    ManEntry{"~/.cache/huggingface/hub", "models that were downloaded; nothing is written there"},
    ManEntry{"~/.config/hyb/config.toml",
             "settings of chat and run for what the command line leaves open, as TOML: the names "
             "of long options (model = \"org/name\", temperature = 0.7); [chat] and [run] begin "
             "those of one command, [NAME] those of models of this name (* and ? are any letters). "
             "What a saved chat has wins over it. hyb doctor shows it, and what is wrong in it"},
    ManEntry{"~/.local/share/hyb/sessions/NAME.session", "a saved chat, for its owner alone"},
    ManEntry{"~/.local/state/hyb/history", "what was typed in chats"},
    ManEntry{"OUT.job", "beside a batch's results: what they are of"}};

template <typename Entries>
std::string section(const char* title, const Entries& entries) {
  std::string text = fmt::format(".SH {}\n", title);
  for (const ManEntry& entry : entries) {
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(entry.name), roff(entry.text));
  }
  return text;
}

std::string page_head(const std::string& name, std::string_view about, const std::string& version) {
  std::string title;
  std::ranges::transform(name, std::back_inserter(title), toupper);
  return fmt::format(
      ".TH \"{}\" 1 \"\" \"{}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n",
      roff(title), roff(version), roff(name), roff(about));
}

std::string examples_of(const std::string& command) {
  std::string text = ".SH EXAMPLES\n";
  for (const std::string_view example : command_help(command).examples)
    text += fmt::format(".PP\n.nf\n.RS\n{}\n.RE\n.fi\n", roff(example));
  return text;
}

constexpr const char* about_models =
    ".PP\n\\fIMODEL\\fR is a folder, a GGUF file, org/name[@revision][:TAG] in the Hugging Face "
    "cache, a name of ollama's, or demo, the small model inside the binary, which is the "
    "default.\n";

std::string command_page(const CommandOutline& command, const std::string& version) {
  std::string text = page_head("hyb-" + command.name, command.about, version);
  text += ".B hyb " + roff(command.name) + "\n";
  for (const OptionOutline& option : command.options) {
    if (option.names.empty()) text += "\\fI" + roff(option.positional) + "\\fR\n";
  }
  text += "[\\fIOPTION\\fR]...\n.SH DESCRIPTION\n" + roff(command.about) + ".\n" + about_models;
  text += ".SH OPTIONS\n" + option_entries(command);
  for (const CommandOutline& sub : command.commands) {
    text += fmt::format(".SS hyb {} {}\n{}\n{}", roff(command.name), roff(sub.name),
                        roff(sub.about), option_entries(sub));
  }
  return text + examples_of(command.name) + section("EXIT STATUS", exit_codes) +
         ".SH SEE ALSO\n.BR hyb (1)\n";
}

}  // namespace

std::string man_page(const CommandOutline& root, const std::string& command,
                     const std::string& version) {
  const std::vector<std::string> names = names_of(root.commands);
  if (!command.empty()) {
    const auto found = std::ranges::find(root.commands, command, &CommandOutline::name);
    if (found != root.commands.end()) return command_page(*found, version);
    throw Error(ErrorKind::usage,
                fmt::format("manual: no command {}; there are {}", command, spaced(names, ", ")));
  }
  std::string text = page_head("hyb", "run hybrid language models on one machine", version);
  text += ".B hyb\n\\fICOMMAND\\fR [\\fIOPTION\\fR]...\n.SH DESCRIPTION\n";
  text +=
      "Answers prompts with models that mix attention and recurrent layers, from the folder that "
      "Hugging Face publishes or from a GGUF file. Answers and data go to stdout, all else to "
      "stderr.\n";
  text += about_models + std::string(".SH COMMANDS\n");
  std::string pages;
  for (const CommandOutline& one : root.commands) {
    text += fmt::format(".TP\n.BR hyb\\-{} (1)\n{}\n", roff(one.name), roff(one.about));
    pages += fmt::format("{}.BR hyb\\-{} (1)", pages.empty() ? "" : ",\n", roff(one.name));
  }
  return text + ".SH OPTIONS\n" + option_entries(root) + examples_of("hyb") +
         section("ENVIRONMENT", environment_variables) + section("FILES", files_of_users) +
         section("EXIT STATUS", exit_codes) + ".SH SEE ALSO\n" + pages + "\n";
}

}  // namespace hyb::app
