#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/inspect/model_list.h"
#include "app/machine/environment.h"
#include "app/ui/table.h"
#include "app/ui/terminal.h"

namespace hyb::app {
namespace {

struct ListFlags {
  bool json = false;
};

int list_main(const ListFlags& options) {
  const Environment environment = read_environment();
  const ModelList list = list_models(environment);
  write_output(options.json ? pretty_json(model_list_json(list))
                            : model_list_text(list, text_columns(environment)));
  return 0;
}

Action describe_list(CLI::App& cli) {
  const auto options = std::make_shared<ListFlags>();  // CLI11 keeps pointers into it
  cli.add_flag("--json", options->json, "print one JSON object");
  return [options] { return list_main(*options); };
}

}  // namespace

const Command list_command = {
    "list", "List models: folders in the Hugging Face cache, GGUF files, presets", describe_list};

}  // namespace hyb::app
