#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/machine/environment.h"
#include "core/base/json.h"

namespace CLI {
class App;
}

namespace hyb::app {

/// A line KEY = VALUE of a file of settings.
struct FileSetting {
  std::string section;                   ///< of [SECTION]; empty: before any
  std::string key;                       ///< a long option without its dashes
  std::vector<std::string> values = {};  ///< one, or those of a list
  bool is_switch = false;                ///< true or false
  int line = 0;                          ///< from 1 on
};

/// Reads a subset of TOML: sections, of which the name is taken as a whole; texts in quotes of all
/// kinds, numbers, true, false and lists; comments. Throws Error(model) that begins with `source`
/// and the line.
std::vector<FileSetting> parse_settings(const std::string& text, const std::string& source);

/// Adds --config, to commands that settings are for.
void add_settings_option(CLI::App& cli);

/// The file of settings of a person: values for options of `chat` and `run` that the command line
/// leaves open. Those before any section and in [chat] or [run] are for every model; those in
/// another [SECTION] for models of this name.
class SettingsFile {
 public:
  /// The file that --config of `command` names, else the environment's; a file that is only looked
  /// for may be absent. Throws Error(model) with file, line and key for what is malformed, or is a
  /// setting of neither command.
  SettingsFile(const CLI::App& command, const Environment& environment);

  bool is_there() const { return is_there_; }

  /// Sets the options of `command` as if these were their defaults: they count as not given, and
  /// one that excludes an option that is given stays as it is. Without a model what is for all,
  /// with one what is for that model alone. Throws Error(model) as the constructor for bad values.
  void apply(CLI::App& command) const;
  void apply(CLI::App& command, const std::string& model) const;

  /// Sets all of it, for no use but to throw for bad values. `root` is the whole command line.
  void try_all(CLI::App& root) const;

  /// One line: keys and values, by section.
  std::string text() const;
  /// [{"section", "key", "values", "line"}]
  Json json() const;

 private:
  void check(const CLI::App& root) const;
  void apply(CLI::App& command, const FileSetting& setting) const;

  std::filesystem::path path_;
  std::optional<std::string> home_;
  bool is_there_ = false;
  std::vector<FileSetting> settings_;
};

/// True if [section] matches the model's name. Sections are patterns with * and ? for the whole
/// name or its last part, with or without what follows an @ or a colon.
bool is_section_for(const std::string& section, const std::string& model);

}  // namespace hyb::app
