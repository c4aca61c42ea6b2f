#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "app/verify/passages.h"
#include "core/engine/engine.h"

namespace hyb::app {

/// One promise, checked.
struct Verdict {
  std::string promise;
  std::int64_t rows = 0;  ///< that were compared
  std::string fault;      ///< "": kept

  bool is_kept() const { return fault.empty(); }
};

/// Compares, byte for byte, drawn tokens and logits of the same passages run in different company,
/// cut differently, resumed, on other numbers of threads and by the engine.
class Promises {
 public:
  /// `on_verdict` is called with every verdict as it is known.
  Promises(Runner& runner, std::vector<Passage> passages, std::uint64_t seed,
           std::function<void(const Verdict&)> on_verdict);

  /// Runs the passages alone and whole: what all others are held against. Finds logits that are
  /// not numbers.
  void run_alone();

  void check_together();
  void check_cuts();
  void check_copies();
  void check_resume();
  /// Two that go on from one int8 snapshot. The runner has packed snapshots.
  void check_packed(Runner& packed);
  void check_engine();
  /// The engine again, with drafts that are right for a while and then wrong. The runner has rings
  /// where it has recurrent layers, and rows for them. Where it has room for branches, a second
  /// guess is right for as long as there are tokens.
  void check_speculation();

  /// On another runner of the same model. `what` names it: "threads 1 = threads 2".
  void check_runner(Runner& other, const std::string& what);

  const std::vector<Verdict>& verdicts() const { return verdicts_; }

 private:
  void compare(const std::string& promise, std::span<const Trace> found);
  void add(Verdict verdict);
  std::vector<std::int32_t> random_cuts(std::size_t tokens);
  std::vector<Completion> run_engine(const SpeculationOptions& speculation);
  void compare_answers(const std::string& promise, std::span<const Completion> answers,
                       std::string fault);

  Runner* runner_;
  std::vector<Passage> passages_;
  std::uint64_t seed_;
  std::function<void(const Verdict&)> on_verdict_;
  std::vector<Trace> alone_;
  std::vector<Verdict> verdicts_;
};

}  // namespace hyb::app
