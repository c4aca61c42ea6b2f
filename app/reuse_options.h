#pragma once

#include <string>

#include "app/options.h"

namespace hyb::app {

/// Adds those of commands that serve prompts: --prefix-cache, --snapshots, --audit, --record. The
/// options outlive `cli`.
void add_reuse_options(CLI::App& cli, ReuseOptions& options);

}  // namespace hyb::app
