#include "app/batch/line_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace hyb::app {

LineReader::LineReader(int descriptor, std::size_t kept_max)
    : descriptor_(descriptor), kept_max_(kept_max), buffer_(std::size_t{1} << 18) {}

bool LineReader::fill() {
  for (;;) {
    const ssize_t count =
        ::pread(descriptor_, buffer_.data(), buffer_.size(), static_cast<off_t>(offset_));
    if (count >= 0) {
      begin_ = 0;
      end_ = static_cast<std::size_t>(count);
      return count > 0;
    }
    if (errno != EINTR) {
      throw Error(ErrorKind::model, std::string("reading lines: ") + std::strerror(errno));
    }
  }
}

bool LineReader::next(LinePlace& place, std::string& text) {
  place = {.offset = offset_, .bytes = 0, .is_terminated = false};
  text.clear();
  for (;;) {
    if (begin_ == end_ && !fill()) return place.bytes > 0;
    const char* from = buffer_.data() + begin_;
    const void* found = std::memchr(from, '\n', end_ - begin_);
    const std::size_t count =
        found == nullptr ? end_ - begin_
                         : static_cast<std::size_t>(static_cast<const char*>(found) - from);
    text.append(from, std::min(count, kept_max_ - text.size()));
    place.bytes += count;
    place.is_terminated = found != nullptr;
    const std::size_t used = count + (found != nullptr ? 1 : 0);
    begin_ += used;
    offset_ += used;
    if (found != nullptr) return true;
  }
}

}  // namespace hyb::app
