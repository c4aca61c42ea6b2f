#pragma once

#include <map>
#include <string>

#include "core/base/json.h"

namespace hyb {

/// What has to be equal before bytes of one run are used by another: names of facts and their
/// values, such as the hash of the weights or the type of the recurrent state.
using Fingerprint = std::map<std::string, std::string>;

/// The first difference as "state_dtype is F32 here and BF16 there"; empty: there is none.
std::string difference(const Fingerprint& here, const Fingerprint& there);

Json to_json(const Fingerprint& fingerprint);

/// Throws Error(model) that begins with `source` for what is no object of strings.
Fingerprint fingerprint_from(const Json& json, const std::string& source);

}  // namespace hyb
