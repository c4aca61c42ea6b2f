#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "app/machine/environment.h"
#include "app/sessions/session_folder.h"
#include "app/ui/table.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"
#include "core/io/file.h"

namespace hyb::app {
namespace {

struct SessionsFlags {
  std::string action = "list";
  std::vector<std::string> names;
  bool json = false, is_forced = false;
};

SessionFolder folder_of(const Environment& environment) {
  if (environment.data_folder) return SessionFolder(*environment.data_folder / "sessions");
  throw Error(ErrorKind::usage, "sessions: there is no place for them; set HOME or XDG_DATA_HOME");
}

/// To a file, which is not there unless --force is given, or to stdout.
void export_session(const SessionsFlags& options, const SessionFolder& folder) {
  if (options.names.size() > 2) {
    throw Error(ErrorKind::usage, "sessions export: takes the session's name and a file");
  }
  const SessionRecord record = folder.read_record(options.names[0]);
  const std::string text = options.json ? pretty_json(transcript_json(record))
                                        : transcript_markdown(record.conversation);
  if (options.names.size() == 1 || options.names[1] == "-") {
    write_output(text);
    return;
  }
  const std::filesystem::path file = options.names[1];
  std::error_code failed;  // then writing fails, too, and says why
  if (!options.is_forced && std::filesystem::exists(file, failed)) {
    throw Error(ErrorKind::usage, file.string() + ": is there already; --force replaces it");
  }
  write_atomically(file, text, FileAccess::umask);
}

int sessions_main(const SessionsFlags& options) {
  const Environment environment = read_environment();
  const SessionFolder folder = folder_of(environment);
  if (options.action == "list") {
    if (!options.names.empty()) {
      throw Error(ErrorKind::usage, "sessions list: takes no name; see hyb sessions show");
    }
    write_output(options.json ? pretty_json(session_list_json(folder))
                              : session_list_text(folder, text_columns(environment)));
    return 0;
  }
  if (options.names.empty()) {
    throw Error(ErrorKind::usage, "sessions " + options.action + ": the session's name is missing");
  }
  if (options.json && options.action != "show" && options.action != "export") {
    throw Error(ErrorKind::usage, "--json goes with hyb sessions list, show or export");
  }
  if (options.is_forced && options.action != "export") {
    throw Error(ErrorKind::usage, "--force goes with hyb sessions export");
  }
  if (options.action == "export") {
    export_session(options, folder);
    return 0;
  }
  if (options.action == "rename") {
    if (options.names.size() != 2) {
      throw Error(ErrorKind::usage, "sessions rename: takes the session's name and a new one");
    }
    check_own_name(options.names[1]);
    folder.rename(options.names[0], options.names[1]);
    return 0;
  }
  for (const std::string& name : options.names) {  // all or none
    folder.need(name);
  }
  for (const std::string& name : options.names) {
    if (options.action == "rm") {
      folder.remove(name);
    } else if (options.json) {
      write_output(to_text(transcript_json(folder.read_record(name))) + "\n");
    } else {
      write_output(fitted_to(Stream::output, transcript(folder.read_record(name).conversation)));
    }
  }
  return 0;
}

Action describe_sessions(CLI::App& cli) {
  const auto options = std::make_shared<SessionsFlags>();  // CLI11 keeps pointers into it
  cli.add_option("action", options->action,
                 "list sessions, show what was said, write it as Markdown (export), rename one, or "
                 "remove them (rm)")
      ->check(CLI::IsMember({"list", "show", "export", "rename", "rm"}))
      ->capture_default_str();
  cli.add_option("names", options->names,
                 "which sessions to show or remove; old and new name; or the one to export and a "
                 "file (default: stdout)")
      ->type_name("SESSION");
  cli.add_flag("--json", options->json,
               "print JSON: the list, or of show and export an object per session, which hyb run "
               "--messages takes");
  cli.add_flag("--force", options->is_forced, "let export replace a file");
  return [options] { return sessions_main(*options); };
}

}  // namespace

const Command sessions_command = {"sessions", "List, show, export, rename or remove saved chats",
                                  describe_sessions};

}  // namespace hyb::app
