#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "app/commands/commands.h"
#include "app/environment.h"
#include "app/inspect/inspection.h"
#include "app/options.h"
#include "app/ui/process.h"
#include "app/ui/table.h"
#include "core/base/error.h"
#include "core/base/log.h"

namespace hyb::app {
namespace {

struct InspectFlags {
  ModelOptions model;
  bool tensors = false;
  bool json = false;
};

int inspect_main(const InspectFlags& options) {
  const ModelSource source = ModelSource::find(options.model.model, read_environment());
  const Inspection all = inspect(source, options.model);
  write_stdout(options.json ? pretty_json(inspection_json(all, options.tensors))
                            : inspection_text(all, options.tensors));
  if (all.tensors && !all.tensors->is_complete()) {
    log::error("the model can't be loaded: tensors are missing or wrong");
    return static_cast<int>(ErrorKind::model);
  }
  return 0;
}

Action describe_inspect(CLI::App& cli) {
  const auto options = std::make_shared<InspectFlags>();  // CLI11 keeps pointers into it
  options->model.device = "cpu";                          // what weights hold there
  cli.add_option("model", options->model.model,
                 "folder (config.json alone is enough), org/name[@revision] in the Hugging Face "
                 "cache, demo, or the name of a published configuration")
      ->type_name("MODEL")
      ->required();
  add_type_options(cli, options->model);
  cli.add_flag("--tensors", options->tensors, "list every tensor");
  cli.add_flag("--json", options->json, "one JSON object");
  return [options] { return inspect_main(*options); };
}

}  // namespace

const Command inspect_command = {"inspect", "Show what a model is made of and what it costs",
                                 describe_inspect};

}  // namespace hyb::app
