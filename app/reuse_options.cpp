#include "app/reuse_options.h"

namespace hyb::app {

void add_reuse_options(CLI::App& cli, ReuseOptions& options) {
  cli.add_option("--prefix-cache", options.prefixes,
                 "remember what prompts began with, so that it is not run again")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  cli.add_option("--snapshots", options.snapshots,
                 "of recurrent state: exact, or int8, which holds about four times as many and "
                 "changes answers a little")
      ->check(CLI::IsMember({"exact", "int8"}))
      ->capture_default_str();
  cli.add_flag("--audit", options.audit, "check all books of memory after every step: slow");
  cli.add_option("--record", options.record,
                 "write what was asked as a trace for hyb replay: lengths and what prompts have in "
                 "common, no text");
}

}  // namespace hyb::app
