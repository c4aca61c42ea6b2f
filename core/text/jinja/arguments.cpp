#include "core/text/jinja/arguments.h"

#include <algorithm>
#include <string>

#include "core/text/jinja/fault.h"
#include "core/text/jinja/operators.h"

namespace hyb::jinja {

Bound::Bound(const Arguments& arguments, std::string_view function,
             std::initializer_list<std::string_view> parameters, std::size_t required)
    : function_(function), parameters_(parameters), values_(parameters.size()) {
  const std::string who(function);
  if (arguments.positional.size() > parameters.size()) {
    throw Fault(who + " takes at most " + std::to_string(parameters.size()) + " arguments, got " +
                std::to_string(arguments.positional.size()));
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    values_[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters_.begin(), parameters_.end(), name);
    if (found == parameters_.end()) {
      throw Fault(who + " has no parameter '" + std::string(name) + "'");
    }
    auto& place = values_[static_cast<std::size_t>(found - parameters_.begin())];
    if (place) throw Fault(who + " got '" + std::string(name) + "' twice");
    place = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!values_[i]) throw Fault(who + " needs '" + std::string(parameters_[i]) + "'");
  }
}

bool Bound::truth(std::size_t parameter, bool fallback) const {
  return has(parameter) ? is_true(*values_[parameter]) : fallback;
}

std::int64_t Bound::integer(std::size_t parameter, std::int64_t fallback) const {
  if (!given(parameter)) return fallback;
  if (values_[parameter]->is_integral()) return values_[parameter]->integer();
  throw Fault(std::string(function_) + ": '" + std::string(parameters_[parameter]) +
              "' is an integer, got " + type_name(*values_[parameter]));
}

Text Bound::text(std::size_t parameter) const {
  if ((*this)[parameter].is_text()) return values_[parameter]->text();
  throw Fault(std::string(function_) + ": '" + std::string(parameters_[parameter]) +
              "' is a string, got " + type_name((*this)[parameter]));
}

Text Bound::text_or(std::size_t parameter, Text fallback) const {
  return given(parameter) ? text(parameter) : fallback;
}

}  // namespace hyb::jinja
