#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/doctor/checkup.h"
#include "app/machine/environment.h"
#include "app/ui/table.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

struct DoctorFlags {
  bool json = false;
};

int doctor_main(CLI::App& cli, const DoctorFlags& options) {
  const Environment environment = read_environment();
  Checkup checkup = examine(environment);
  checkup.settings = examine_settings(*cli.get_parent(), environment);
  write_output(options.json ? pretty_json(checkup_json(checkup)) : checkup_text(checkup));
  const std::string trouble = checkup.settings.json["trouble"];  // chat and run would not start
  return trouble.empty() ? 0 : static_cast<int>(ErrorKind::model);
}

Action describe_doctor(CLI::App& cli) {
  const auto options = std::make_shared<DoctorFlags>();  // CLI11 keeps pointers into it
  cli.add_flag("--json", options->json, "print one JSON object");
  return [options, &cli] { return doctor_main(cli, *options); };
}

}  // namespace

const Command doctor_command = {"doctor", "Show what this machine has and what hyb will use",
                                describe_doctor};

}  // namespace hyb::app
