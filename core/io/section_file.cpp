#include "core/io/section_file.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace hyb {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied byte by byte");

struct Front {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t zero;
  std::array<std::uint64_t, 2> zeros;
  std::uint64_t sum;
};
static_assert(sizeof(Front) == 40);

struct Head {
  std::uint64_t length;
  std::uint32_t kind;
  std::uint32_t number;
  std::uint64_t sum;
};
static_assert(sizeof(Head) == 24);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// Sums up everything but the checksum, which is the last field.
template <typename T>
std::uint64_t sum_of(const T& value) {
  return checksum(bytes_of(value).first(sizeof(T) - sizeof(value.sum)));
}

constexpr std::uint64_t low_half = 0xFFFFFFFF;

std::uint64_t payload_half(const Head& head, std::span<const std::byte> payload) {
  const bool is_open = (head.kind & open_section) != 0;
  return is_open ? 0 : checksum(payload, sum_of(head)) & low_half;
}

std::uint64_t head_half(const Head& head) { return sum_of(head) << 32; }

Head head_of(std::uint32_t kind, std::uint32_t number, std::span<const std::byte> payload) {
  Head head{.length = payload.size(), .kind = kind, .number = number, .sum = 0};
  head.sum = head_half(head) | payload_half(head, payload);
  return head;
}

}  // namespace

SectionWriter::SectionWriter(const std::filesystem::path& path, const SectionFormat& format)
    : file_(path) {
  Front front{.magic = format.magic, .version = format.version, .zero = 0, .zeros = {}, .sum = 0};
  front.sum = sum_of(front);
  file_.write(bytes_of(front));
}

void SectionWriter::add(std::uint32_t kind, std::uint32_t number,
                        std::span<const std::byte> payload) {
  file_.write(bytes_of(head_of(kind, number, payload)));
  file_.write(payload);
}

SectionLog::SectionLog(std::filesystem::path path, std::uint64_t end)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK)),
      end_(end) {
  if (!descriptor_.is_open()) fail("can't be written", errno);
  if (::ftruncate(descriptor_.number(), static_cast<off_t>(end)) != 0) fail("can't be cut", errno);
}

void SectionLog::fail(const char* what, int code) const {
  throw Error(ErrorKind::runtime, fmt::format("{}: {}: {}", path_.string(), what,
                                              std::generic_category().message(code)));
}

void SectionLog::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  const int code = write_at(descriptor_.number(), offset, bytes);
  if (code != 0) fail("can't be written", code);
}

std::uint64_t SectionLog::add(std::uint32_t kind, std::uint32_t number,
                              std::span<const std::byte> payload) {
  const std::uint64_t begin = end_ + sizeof(Head);
  try {
    write(end_, bytes_of(head_of(kind, number, payload)));
    write(begin, payload);
  } catch (const Error&) {
    // What is added next may be shorter. Where this fails, too, it is torn for a reader.
    static_cast<void>(::ftruncate(descriptor_.number(), static_cast<off_t>(end_)) == 0);
    throw;
  }
  end_ = begin + payload.size();
  return begin;
}

void SectionLog::overwrite(std::uint64_t begin, std::span<const std::byte> payload) {
  require(begin + payload.size() <= end_, "section log: within what was written");
  write(begin, payload);
}

void SectionLog::read(std::uint64_t begin, std::span<std::byte> into) const {
  const auto [bytes, code] = read_at(descriptor_.number(), begin, into);
  if (code != 0 || bytes < into.size()) fail("can't be read", code != 0 ? code : EIO);
}

void SectionLog::sync() {
  if (::fdatasync(descriptor_.number()) != 0) fail("can't be synced", errno);
}

SectionReader::SectionReader(const std::filesystem::path& path, const SectionFormat& format)
    : file_(path), bytes_max_(format.bytes_max) {
  if (file_.size() < sizeof(Front)) fail("is too short for a file of this kind");
  Front front{};
  file_.read(0, std::as_writable_bytes(std::span(&front, 1)));
  if (front.magic != format.magic) fail("is not a file of this kind: its magic number is another");
  is_older_ = format.older_version != 0 && front.version == format.older_version;
  if (front.version != format.version && !is_older_) {
    fail(fmt::format("has format version {}, this hyb reads {}", front.version, format.version));
  }
  if (front.sum != sum_of(front)) fail("is damaged: the checksum of its front is wrong");
  position_ = sizeof(Front);
}

void SectionReader::fail(std::string_view what) const {
  throw Error(ErrorKind::model, fmt::format("{}: {}", file_.path().string(), what));
}

/// A writer that was killed may have left a part of a section, or a gap of zeros.
std::optional<SectionHead> SectionReader::next() {
  const std::uint64_t rest = file_.size() - position_;
  if (rest < sizeof(Head)) return std::nullopt;
  Head head{};
  file_.read(position_, std::as_writable_bytes(std::span(&head, 1)));
  if (!is_older_ && (head.sum & ~low_half) != head_half(head)) {
    if (std::bit_cast<std::array<char, sizeof(Head)>>(head) == std::array<char, sizeof(Head)>()) {
      return std::nullopt;
    }
    fail(fmt::format("is damaged: the checksum of the head at byte {} is wrong", position_));
  }
  if (head.length > rest - sizeof(Head)) return std::nullopt;
  const bool is_open = !is_older_ && (head.kind & open_section) != 0;
  if (!is_open && head.length > bytes_max_) fail("has a section that is larger than it may be");
  payload_begin_ = position_ + sizeof(Head);
  head_ = {.kind = head.kind, .number = head.number, .length = head.length};
  seed_ = sum_of(head);
  sum_ = head.sum;
  if (!is_older_ && head.length == rest - sizeof(Head) && !is_open) {
    std::vector<std::byte> last(static_cast<std::size_t>(head.length));
    file_.read(payload_begin_, last);
    if (payload_half(head, last) != (head.sum & low_half)) return std::nullopt;
  }
  position_ = payload_begin_ + head.length;
  return head_;
}

void SectionReader::read(std::span<std::byte> into) const {
  require(into.size() == head_.length, "section reader: a payload is read whole");
  file_.read(payload_begin_, into);
  const std::uint64_t all = is_older_ ? ~std::uint64_t{0} : low_half;
  const bool is_open = !is_older_ && (head_.kind & open_section) != 0;
  if (!is_open && (checksum(into, seed_) & all) != (sum_ & all)) {
    fail(fmt::format("is damaged: the checksum of the section at byte {} is wrong",
                     payload_begin_ - sizeof(Head)));
  }
}

}  // namespace hyb
