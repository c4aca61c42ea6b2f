#include "app/commands/commands.h"

namespace hyb::app {

std::span<const Command* const> commands() {
  static constexpr const Command* table[] = {
      &batch_command,    &bench_command,  &chat_command,    &completion_command, &doctor_command,
      &eval_command,     &fit_command,    &inspect_command, &list_command,       &manual_command,
      &quantize_command, &render_command, &replay_command,  &run_command,        &sessions_command,
      &tokenize_command, &verify_command,
  };
  return table;
}

}  // namespace hyb::app
