#include <algorithm>

#include <fmt/format.h>

#include "app/batch/batch_job.h"
#include "app/batch/request_maker.h"
#include "app/request/model_texts.h"
#include "app/runtime/memory_plan.h"
#include "app/ui/process.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

/// Limits that a session of this model would set for requests.
RequestLimits limits_of(const BatchOptions& options, const RunSettings& settings,
                        const Tokenizer& tokenizer) {
  const ModelOutline outline = outline_of(settings, {.sequences = options.parallel});
  const MemoryPlan memory =
      plan_memory(outline.plan, outline.geometry, budget_of(settings), settings.context,
                  make_queue(settings).threads(), shape_of(options));
  return {.vocab = std::min(tokenizer.size(), outline.plan.vocab),
          .length_max = memory.length_max,
          .has_text = true};
}

std::optional<LineFailure> failure_of(const RequestLine& line, RequestMaker& maker) {
  if (line.failure) return line.failure;
  try {
    maker.make(line);
    return std::nullopt;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage && error.kind() != ErrorKind::model) throw;
    return LineFailure{.fault = LineFault::request, .message = error.what()};
  }
}

}  // namespace

int validate_batch(const BatchOptions& options) {
  const StopAtOnce nothing_to_lose;
  const InputFile input = scanned_input(options);
  const RunSettings settings = resolve(options.model, read_environment());
  const ModelSource& source = settings.source;
  check_texts(options, input, source);
  const ModelTexts texts = read_texts(source);
  const Tokenizer& tokenizer = need_tokenizer(texts, source);
  const RequestLimits limits = limits_of(options, settings, tokenizer);
  ConstraintCache rules(tokenizer, texts.stop_tokens, limits.vocab);
  RequestMaker maker(tokenizer, texts.chat_template ? &*texts.chat_template : nullptr,
                     terms_of(options, request_of(options.generation, texts), limits), &rules);
  std::int64_t failed = 0;
  for (const InputLine& place : input.lines()) {
    const RequestLine line = input.read(place);
    const auto failure = failure_of(line, maker);
    for (const std::string& text : maker.take_warnings()) log::warning(text);
    if (!failure) continue;
    ++failed;
    if (!write_stdout(failed_line(line.custom_id, *failure))) return failed_lines_exit;
  }
  write_stderr(
      fmt::format("{}, {} would fail\n", counted(std::ssize(input.lines()), "line"), failed));
  return failed > 0 ? failed_lines_exit : 0;
}

}  // namespace hyb::app
