#include "core/engine/requests.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/scoped_flag.h"
#include "core/engine/trace.h"

namespace hyb {

RequestId Requests::add(RequestTerms terms, Sink& sink) {
  const RequestId id{added_++};
  terms.id = id;
  terms.stop = StopStrings(terms.request.stop);
  Active& active = active_[id];
  active.terms = std::move(terms);
  active.sink = &sink;
  Request& request = active.terms.request;
  for (std::int32_t choice = 0; choice < request.choices; ++choice) {
    active.choices.push_back(std::make_unique<Sequence>(active.terms, choice));
  }
  active.unfinished = active.choices.size();
  unfinished_ += request.choices;
  if (recorder_ != nullptr && !request.prefill_only) {
    recorder_->submitted(id, request.choices, request.prompt, active.terms.submitted);
  }
  request.prompt = {};  // every choice has its own by now
  return id;
}

std::vector<Sequence*> Requests::choices(RequestId request) const {
  std::vector<Sequence*> choices;
  const auto found = active_.find(request);
  if (found == active_.end()) return choices;
  for (const auto& choice : found->second.choices) {
    if (choice != nullptr) choices.push_back(choice.get());
  }
  return choices;
}

void Requests::add_text(const Sequence& sequence, std::string text) {
  if (text.empty()) return;
  const ArrivalOrder age = sequence.age();
  events_.push_back({active_.at(age.request).sink, age, std::move(text), std::nullopt});
}

void Requests::end(const Sequence& sequence, Completion completion) {
  const auto [request, choice] = sequence.age();
  Active& active = active_.at(request);
  if (recorder_ != nullptr && !active.terms.request.prefill_only) {
    recorder_->ended(request, choice, completion.tokens);
  }
  events_.push_back({active.sink, {request, choice}, {}, std::move(completion)});
  active.choices[static_cast<std::size_t>(choice)].reset();
  --unfinished_;
  if (--active.unfinished == 0) active_.erase(request);
}

void Requests::deliver() {
  if (in_delivery_) return;
  const ScopedFlag delivering(in_delivery_);
  while (!events_.empty()) {
    const Event event = std::move(events_.front());
    events_.pop_front();
    const auto [request, choice] = event.sequence;
    event.completion ? event.sink->on_finish(request, choice, *event.completion)
                     : event.sink->on_text(request, choice, event.text);
  }
}

void Requests::set_chunks(const ChunkPace& pace) {
  for (auto& [id, active] : active_) {
    Request& request = active.terms.request;
    if (request.chunk_time.count() > 0) request.chunk_tokens = pace.tokens_in(request.chunk_time);
  }
}

std::vector<Sequence*> Requests::limit(std::int32_t length_max) {
  std::vector<Sequence*> too_long;
  for (auto& [id, active] : active_) {
    active.terms.length_max = std::min(active.terms.length_max, length_max);
    for (const auto& choice : active.choices) {
      if (choice != nullptr && choice->tokens() >= length_max) too_long.push_back(choice.get());
    }
  }
  return too_long;
}

std::size_t Requests::audit() const {
  std::size_t found = 0, awaiting = 0;
  for (const auto& [id, active] : active_) {
    require(active.unfinished > 0, "engine: a request has unfinished choices");
    found += active.unfinished;
    for (const auto& choice : active.choices) {
      if (choice != nullptr && choice->awaited().comes()) ++awaiting;
    }
  }
  require(found == static_cast<std::size_t>(unfinished_),
          "engine: unfinished choices are counted once");
  return awaiting;
}

}  // namespace hyb
