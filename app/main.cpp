#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/machine/environment.h"
#include "app/machine/version.h"
#include "app/options/command_line.h"
#include "app/options/help.h"
#include "app/ui/process.h"
#include "app/ui/progress.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/thread.h"

namespace {

using hyb::Error;
using hyb::ErrorKind;

void colour_messages() {
  hyb::log::set_colour(
      hyb::app::wants_colour(hyb::app::Stream::error, hyb::app::read_environment()));
}

/// The options about messages are accepted before the command and after it.
void add_message_options(CLI::App& cli) {
  const auto& names = hyb::log::level_names;
  cli.add_option_function<std::string>(
         "--log-level",
         [](const std::string& name) {
           hyb::log::set_level(hyb::log::level_from_name(name).value());
         },
         "least severe messages on stderr; default: info")
      ->check(CLI::IsMember(std::vector<std::string>(names.begin(), names.end())))
      ->group("messages");
  cli.add_flag_callback(
         "-q,--quiet", [] { hyb::log::set_level(hyb::log::Level::error); }, "as --log-level error")
      ->group("messages");
  cli.add_option_function<std::string>(
         "--color",
         [](const std::string& name) {
           hyb::app::set_colour(hyb::app::value_of(hyb::app::colours, name).value());
           colour_messages();
         },
         "colors on stdout and stderr; --color alone: always. auto, the default: on a terminal")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->group("messages");
}

int run(int argc, char** argv) {
  CLI::App cli("hyb - run hybrid language models on one machine", "hyb");
  cli.require_subcommand(1);
  cli.set_help_flag("-h,--help", "this help; --help all: every option");
  cli.set_version_flag("-V,--version", hyb::app::version_text(), "the version and the build");
  add_message_options(cli);
  std::vector<std::pair<CLI::App*, hyb::app::Action>> actions;
  for (const hyb::app::Command* command : hyb::app::commands()) {
    CLI::App* sub = cli.add_subcommand(command->name, command->about)->group(command->group);
    actions.emplace_back(sub, command->describe(*sub));
    add_message_options(*sub);
  }
  std::vector<std::string> words = hyb::app::command_words(cli, argc, argv);
  const std::string topic = hyb::app::take_help_topic(words);
  const auto show_help = [&] {
    hyb::app::write_stdout(
        hyb::app::help_text(cli, topic, hyb::app::text_columns(hyb::app::read_environment())));
  };
  if (words.empty()) {
    show_help();
    return static_cast<int>(ErrorKind::usage);
  }
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    cli.parse(words);
  } catch (const CLI::CallForHelp& help) {
    const bool is_of_command = !cli.get_subcommands().empty();
    if (!is_of_command && !cli.remaining().empty()) {  // of a word that is not a command
      throw Error(ErrorKind::usage, hyb::app::usage_text(cli, help));
    }
    show_help();
    return 0;
  } catch (const CLI::CallForVersion& version) {
    hyb::app::write_stdout(std::string(version.what()) + '\n');
    return 0;
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::usage, hyb::app::usage_text(cli, error));
  }
  hyb::app::prepare_cards(hyb::app::read_environment());
  for (const auto& [sub, action] : actions) {
    if (sub->parsed()) return action();
  }
  return static_cast<int>(ErrorKind::usage);
}

}  // namespace

int main(int argc, char** argv) {
  hyb::app::ProcessGuard process;  // signals, closed stdout, terminal modes
  hyb::log::set_filter(hyb::app::message_text);
  colour_messages();
  try {
    return process.exit_code(run(argc, argv));
  } catch (const Error& error) {
    hyb::log::error(error.what());
    return process.exit_code(static_cast<int>(error.kind()));
  } catch (const std::bad_alloc&) {
    hyb::log::error("out of memory; ask for less with --memory or --context");
    return process.exit_code(static_cast<int>(ErrorKind::memory));
  } catch (const std::system_error& error) {
    const Error cause = hyb::error_of(error);
    hyb::log::error(cause.what());
    return process.exit_code(static_cast<int>(cause.kind()));
  } catch (const std::exception& error) {
    hyb::log::error(error.what());
    return process.exit_code(static_cast<int>(ErrorKind::runtime));
  }
}
