#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/doctor/checkup.h"
#include "app/environment.h"
#include "app/ui/pretty_json.h"
#include "app/ui/process.h"

namespace hyb::app {
namespace {

struct Options {
  bool json = false;
};

int run(const Options& options) {
  const Checkup checkup = examine(read_environment());
  write_stdout(options.json ? pretty_json(checkup_json(checkup)) : checkup_text(checkup));
  return 0;
}

Action describe(CLI::App& cli) {
  const auto options = std::make_shared<Options>();  // CLI11 keeps pointers into it
  cli.add_flag("--json", options->json, "one JSON object");
  return [options] { return run(*options); };
}

}  // namespace

const Command doctor_command = {"doctor", "Show what this machine has and what hyb will use",
                                describe};

}  // namespace hyb::app
