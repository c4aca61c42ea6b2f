#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "app/model_source.h"
#include "core/base/json.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

/// Whether a model is to think before it answers; nothing: what its chat template does by itself.
using Think = std::optional<bool>;

/// Adds --think on|off; `think` outlives `cli`.
void add_think_option(CLI::App& cli, Think& think);

/// "on", "off" or "default".
std::string_view name_of(Think think);

/// What name_of() names; nothing: another word.
std::optional<Think> parse_think(std::string_view word);

/// Adds --thoughts show|hide; `shown` outlives `cli`, nothing: nobody said.
void add_thoughts_option(CLI::App& cli, std::optional<bool>& shown);

/// What the template gets to see: enable_thinking and thinking, the two names in use.
Json think_variables(Think think);

/// Throws Error(usage) that begins with `who` where the template makes the same prompt of either,
/// so that asking for one would change nothing.
void check_think(Think think, const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                 std::string_view who);

/// --think, of a model whose weights were not read yet.
void check_think(Think think, const ModelSource& source);

}  // namespace hyb::app
