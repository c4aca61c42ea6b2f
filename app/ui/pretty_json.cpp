#include "app/ui/pretty_json.h"

#include <nlohmann/json.hpp>

namespace hyb::app {

std::string pretty_json(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace hyb::app
