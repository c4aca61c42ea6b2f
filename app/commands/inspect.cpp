#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "app/commands/commands.h"
#include "app/inspect/content_check.h"
#include "app/inspect/inspection.h"
#include "app/machine/environment.h"
#include "app/options/options.h"
#include "app/ui/progress.h"
#include "app/ui/table.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"
#include "core/base/log.h"

namespace hyb::app {
namespace {

struct InspectFlags {
  ModelOptions model;
  bool tensors = false;
  bool verbose = false;
  bool check = false;
  bool json = false;
  std::vector<std::int32_t> ranks;  ///< none, or those that send and those that receive
};

/// Reads all that Inspection only lists.
ContentCheck check_contents(const ModelSource& source, const Inspection& all,
                            const Environment& environment) {
  ContentCheck check;
  check_tokenizer(source, all.outline.plan, check);
  if (!all.tensors) {
    std::vector<Finding>& findings = source.folder() ? check.defects : check.notes;
    findings.push_back(
        {"weights", all.missing_files.empty() ? "are not there" : all.missing_files});
    return check;
  }
  ProgressLine progress(environment);
  TensorFiles files = source.tensors();
  const auto total = static_cast<std::int64_t>(files.bytes() >> 20);
  check_weight_values(*all.tensors, files, check, [&](std::uint64_t bytes) {
    progress.show({.done = static_cast<std::int64_t>(bytes >> 20), .total = total}, "MiB read");
  });
  return check;
}

int inspect_main(const InspectFlags& options) {
  if (options.model.model.empty()) {
    throw Error(ErrorKind::usage, "the model is missing: hyb inspect MODEL; hyb list shows some");
  }
  const Environment environment = read_environment();
  const RunSettings settings = resolve(options.model, environment);
  const ModelSource& source = settings.source;
  refuse_unread_format(source, options.json);
  Inspection all = inspect(settings);
  if (!options.ranks.empty()) {
    all.exchange = rank_exchange(all.outline, options.ranks.front(), options.ranks.back());
  }
  const TensorList list = options.tensors   ? TensorList::all
                          : options.verbose ? TensorList::unused
                                            : TensorList::faults;
  std::optional<ContentCheck> check;
  if (options.check) check = check_contents(source, all, environment);
  if (options.json) {
    Json json = inspection_json(all, options.tensors);
    if (check) json["check"] = content_json(*check);
    write_output(pretty_json(json));
  } else {
    const bool has_overview = all.has_defects || (!options.tensors && !check);
    write_output(inspection_text(all, list, has_overview) +
                 (check ? '\n' + content_text(*check) : ""));
  }
  if (all.is_partial) {
    log::error("the model can't be loaded: files are missing");
  } else if (all.tensors && !all.tensors->is_complete()) {
    log::error("the model can't be loaded: tensors are missing or wrong");
  } else if (all.has_defects) {
    log::error(
        "the model can't be used as it is: see its tokenizer, chat template and generation config");
  } else if (check && !check->defects.empty()) {
    log::error("the model has defects");
  } else {
    return 0;
  }
  return static_cast<int>(ErrorKind::model);
}

Action describe_inspect(CLI::App& cli) {
  const auto options = std::make_shared<InspectFlags>();  // CLI11 keeps pointers into it
  options->model.device = kernels::Device::cpu;           // what weights hold there
  options->model.model.clear();
  add_model_option(cli, options->model.model,
                   "a folder (config.json alone is enough), a GGUF file, org/name[@revision][:TAG] "
                   "in the Hugging Face cache, a name that ollama uses, demo, or the name of a "
                   "published configuration");
  add_type_options(cli, options->model);
  cli.add_flag("--tensors", options->tensors, "list every tensor");
  cli.add_flag("-v,--verbose", options->verbose, "list tensors that are not used, too");
  cli.add_flag("--check", options->check,
               "read all weights (NaN, infinities, scales) and try the tokenizer; exit 3 on a "
               "defect");
  constexpr std::int32_t ranks_max = 1024;
  cli.add_option("--ranks", options->ranks,
                 "what each of TO devices keeps of a sequence when they divide its heads, and what "
                 "it takes to move it there from FROM devices, such as 1,4")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::Range(1, ranks_max))
      ->type_name("FROM,TO");
  cli.add_flag("--json", options->json, "print one JSON object");
  return [options] { return inspect_main(*options); };
}

}  // namespace

const Command inspect_command = {"inspect", "Show what a model is made of and what it costs",
                                 describe_inspect};

}  // namespace hyb::app
