#pragma once

#include "app/options.h"
#include "app/session.h"
#include "app/sessions/session_keeper.h"

namespace hyb::app {

/// What chats with this model are saved with. Reads a few KiB per tensor.
SessionOrigin session_origin(Session& session, const ModelOptions& options);

}  // namespace hyb::app
