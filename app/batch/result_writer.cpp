#include "app/batch/result_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "core/base/error.h"

namespace hyb::app {

void ResultWriter::put(std::int64_t place, std::string line) {
  if (!options_.ordered) {
    write(line);
    return;
  }
  early_.emplace(place, std::move(line));
  while (!early_.empty() && early_.begin()->first == written_) {
    write(early_.begin()->second);
    early_.erase(early_.begin());
  }
}

void ResultWriter::write(const std::string& line) {
  using namespace std::chrono_literals;
  const auto give_up = std::chrono::steady_clock::now() + options_.patience;
  std::chrono::milliseconds pause = 50ms;
  for (bool is_first = true;; is_first = false) {
    const int reason = output_.append(line);
    if (reason == 0) break;
    const std::string problem =
        fmt::format("{}: can't be written: {}", output_.path().string(), std::strerror(reason));
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        give_up - std::chrono::steady_clock::now());
    if (left <= 0ms || options_.is_stopped()) throw Error(ErrorKind::runtime, problem);
    if (is_first) options_.say(fmt::format("{}; trying again", problem));
    std::this_thread::sleep_for(std::min(pause, left));
    pause = std::min<std::chrono::milliseconds>(pause * 2, 2s);
  }
  ++written_;
}

}  // namespace hyb::app
