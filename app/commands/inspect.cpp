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
  bool verbose = false;
  bool json = false;
};

int inspect_main(const InspectFlags& options) {
  const Environment environment = read_environment();
  const ModelSource source = ModelSource::find(options.model.model, environment);
  const Inspection all = inspect(source, options.model);
  const TensorList list = options.tensors   ? TensorList::all
                          : options.verbose ? TensorList::unused
                                            : TensorList::faults;
  write_stdout(options.json ? pretty_json(inspection_json(all, options.tensors))
                            : inspection_text(all, list));
  if (all.is_partial) {
    log::error("the model can't be loaded: files are missing");
  } else if (all.tensors && !all.tensors->is_complete()) {
    log::error("the model can't be loaded: tensors are missing or wrong");
  } else {
    return 0;
  }
  return static_cast<int>(ErrorKind::model);
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
  cli.add_flag("-v,--verbose", options->verbose, "list the tensors that are not used, too");
  cli.add_flag("--json", options->json, "one JSON object");
  return [options] { return inspect_main(*options); };
}

}  // namespace

const Command inspect_command = {"inspect", "Show what a model is made of and what it costs",
                                 describe_inspect};

}  // namespace hyb::app
