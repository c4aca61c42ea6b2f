#include <fmt/format.h>

#include <algorithm>

#include "app/batch/batch_job.h"
#include "app/batch/request_maker.h"
#include "app/batch/result_line.h"
#include "app/model_outline.h"
#include "app/session.h"
#include "app/ui/process.h"
#include "core/base/error.h"
#include "core/base/log.h"

namespace hyb::app {
namespace {

/// What a session of this model would take on.
RequestLimits limits_of(const BatchOptions& options, const ModelSource& source,
                        const Tokenizer& tokenizer) {
  const ModelOutline outline = outline_of(source, options.model);
  const MemoryPlan memory =
      plan_memory(outline.plan, outline.geometry, budget_of(options.model), options.model.context,
                  make_queue(options.model).threads(), {.sequences_max = options.parallel});
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
    return LineFailure{.code = "invalid_request", .message = error.what()};
  }
}

}  // namespace

int validate_batch(const BatchOptions& options) {
  const StopAtOnce nothing_to_lose;
  const InputFile input = scanned_input(options);
  const ModelSource source = ModelSource::find(options.model.model, read_environment());
  check_texts(options, input, source);
  const ModelTexts texts = read_texts(source);
  const Tokenizer& tokenizer = need_tokenizer(texts, source);
  RequestMaker maker(tokenizer, texts.chat_template ? &*texts.chat_template : nullptr,
                     terms_of(options, request_of(options.generation, texts),
                              limits_of(options, source, tokenizer)));
  std::int64_t failed = 0;
  for (const InputLine& place : input.lines()) {
    const RequestLine line = input.read(place);
    const auto failure = failure_of(line, maker);
    for (const std::string& text : maker.take_warnings()) log::warning(text);
    if (!failure) continue;
    ++failed;
    if (!write_stdout(failed_line(line.custom_id, *failure))) return failed_lines_exit;
  }
  write_stderr(fmt::format("{} lines, {} would fail\n", input.lines().size(), failed));
  return failed > 0 ? failed_lines_exit : 0;
}

}  // namespace hyb::app
