#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/chat_template.h"

namespace hyb::jinja {

class Meter;

/// Bytes that remember, stretch by stretch, where they came from. They only grow, so a Text into
/// them stays what it is.
class MarkedBuffer {
 public:
  /// The run ends before `end` and begins where the one before ends.
  struct Run {
    std::uint32_t end;
    TextSource source;
  };

  /// Costs are charged to the meter before anything is copied.
  void append(Meter& meter, std::string_view bytes, TextSource source);

  std::string_view bytes() const { return bytes_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(bytes_.size()); }
  const std::vector<Run>& runs() const { return runs_; }
  /// Index of the run that holds the byte at `at`.
  std::size_t run_at(std::uint32_t at) const;
  bool ascii() const { return ascii_; }

 private:
  std::string bytes_;
  std::vector<Run> runs_;
  bool ascii_ = true;
};

/// An immutable string value: a stretch of a buffer. The default one is empty.
/// Offsets below are bytes from the beginning of the text.
class Text {
 public:
  Text() = default;
  Text(MarkedBuffer* buffer, std::uint32_t begin, std::uint32_t end)
      : buffer_(buffer), begin_(begin), end_(end) {}

  /// Valid until something is appended to the buffer, which only `concatenate` does.
  std::string_view view() const {
    return buffer_ == nullptr ? std::string_view{} : buffer_->bytes().substr(begin_, end_ - begin_);
  }
  std::size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }
  /// True only if every character is one byte long; may be false for such a text.
  bool surely_ascii() const { return buffer_ == nullptr || buffer_->ascii(); }
  bool same_stretch(const Text& other) const {
    return buffer_ == other.buffer_ && begin_ == other.begin_ && end_ == other.end_;
  }

  Text slice(std::size_t begin, std::size_t end) const {
    return {buffer_, begin_ + static_cast<std::uint32_t>(begin),
            begin_ + static_cast<std::uint32_t>(end)};
  }
  Text from(std::size_t begin) const { return slice(begin, size()); }

  /// Calls `use(bytes, source)` for each run.
  template <typename Use>
  void for_each_run(Use use) const {
    if (empty()) return;
    std::uint32_t at = begin_;
    for (std::size_t run = buffer_->run_at(begin_); at < end_; ++run) {
      const MarkedBuffer::Run& here = buffer_->runs()[run];
      const std::uint32_t stop = here.end < end_ ? here.end : end_;
      use(buffer_->bytes().substr(at, stop - at), here.source);
      at = stop;
    }
  }

  /// True if the text is the last thing in its buffer, so that it may be continued in place.
  bool at_end_of_buffer() const { return buffer_ != nullptr && end_ == buffer_->size(); }
  MarkedBuffer* buffer() const { return buffer_; }
  std::uint32_t begin() const { return begin_; }

 private:
  MarkedBuffer* buffer_ = nullptr;
  std::uint32_t begin_ = 0;
  std::uint32_t end_ = 0;
};

/// Appends a text with its marks; it may be a stretch of the same buffer.
void append(Meter& meter, MarkedBuffer& buffer, const Text& text);

/// Number of characters (code points).
std::size_t character_count(const Text& text);
/// Byte offset of a character; `character` is at most the count.
std::size_t byte_offset(const Text& text, std::size_t character);

}  // namespace hyb::jinja
