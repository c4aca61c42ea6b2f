#pragma once

#include <string>
#include <string_view>

#include "app/options.h"
#include "core/base/json.h"

namespace hyb::app {

/// What /set changes: the generation options of a chat by name, over the model's own defaults.
class Settings {
 public:
  /// `generation_config` and the vocabulary's size are the model's.
  Settings(GenerationOptions options, const Json& generation_config, std::int32_t vocab);

  const GenerationOptions& options() const { return options_; }

  /// "NAME VALUE" changes, "NAME" and "" show; "default" as the value takes a change back. Returns
  /// what to show. Throws Error(usage): unknown name, not a number, out of range; nothing changes
  /// then.
  std::string set(std::string_view argument);

 private:
  const Json* generation_config_;
  GenerationOptions options_;
  std::int32_t vocab_;
};

}  // namespace hyb::app
