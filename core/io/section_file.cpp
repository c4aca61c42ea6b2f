#include "core/io/section_file.h"

#include <fmt/format.h>

#include <bit>

#include "core/base/error.h"

namespace hyb {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied byte by byte");

struct Front {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t zero;
  std::uint64_t file_bytes;
  std::uint64_t sections;
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

/// Of everything but the checksum, which is the last field.
template <typename T>
std::uint64_t sum_of(const T& value) {
  return checksum(bytes_of(value).first(sizeof(T) - sizeof(value.sum)));
}

}  // namespace

SectionWriter::SectionWriter(const std::filesystem::path& path, const SectionFormat& format)
    : file_(path), format_(format) {
  file_.write(bytes_of(Front{}));
}

void SectionWriter::add(std::uint32_t kind, std::uint32_t number,
                        std::span<const std::byte> payload) {
  Head head{.length = payload.size(), .kind = kind, .number = number, .sum = 0};
  head.sum = checksum(payload, sum_of(head));
  file_.write(bytes_of(head));
  file_.write(payload);
  ++sections_;
}

void SectionWriter::commit() {
  Front front{.magic = format_.magic,
              .version = format_.version,
              .zero = 0,
              .file_bytes = file_.size(),
              .sections = sections_,
              .sum = 0};
  front.sum = sum_of(front);
  file_.rewrite_front(bytes_of(front));
  file_.commit();
}

SectionReader::SectionReader(const std::filesystem::path& path, const SectionFormat& format,
                             Size size)
    : file_(path) {
  if (file_.size() < sizeof(Front)) fail("is too short for a file of this kind");
  Front front{};
  file_.read(0, std::as_writable_bytes(std::span(&front, 1)));
  if (front.magic != format.magic) fail("is not a file of this kind: its magic number is another");
  if (front.version != format.version) {
    fail(fmt::format("has format version {}, this hyb reads {}", front.version, format.version));
  }
  if (front.sum != sum_of(front)) fail("is damaged: the checksum of its front is wrong");
  const bool is_whole = size == Size::as_written;
  if (is_whole && front.file_bytes != file_.size()) {
    fail(fmt::format("has {} bytes, {} were written: it is truncated or damaged", file_.size(),
                     front.file_bytes));
  }
  if (is_whole && front.sections > (file_.size() - sizeof(Front)) / sizeof(Head)) {
    fail(fmt::format("is damaged: it claims {} sections", front.sections));
  }
  position_ = sizeof(Front);
  sections_left_ = front.sections;
}

void SectionReader::fail(std::string_view what) const {
  throw Error(ErrorKind::model, fmt::format("{}: {}", file_.path().string(), what));
}

std::optional<SectionHead> SectionReader::next() {
  if (sections_left_ == 0) {
    if (position_ != file_.size()) fail("is damaged: bytes after the last section");
    return std::nullopt;
  }
  if (file_.size() - position_ < sizeof(Head)) fail("is damaged: a section is missing");
  Head head{};
  file_.read(position_, std::as_writable_bytes(std::span(&head, 1)));
  payload_begin_ = position_ + sizeof(Head);
  if (head.length > file_.size() - payload_begin_) {
    fail(fmt::format("is damaged: the section at byte {} claims {} bytes", position_, head.length));
  }
  head_ = {.kind = head.kind, .number = head.number, .length = head.length};
  seed_ = sum_of(head);
  sum_ = head.sum;
  position_ = payload_begin_ + head.length;
  --sections_left_;
  return head_;
}

void SectionReader::read(std::span<std::byte> into) {
  require(into.size() == head_.length, "section reader: a payload is read whole");
  file_.read(payload_begin_, into);
  if (checksum(into, seed_) != sum_) {
    fail(fmt::format("is damaged: the checksum of the section at byte {} is wrong",
                     payload_begin_ - sizeof(Head)));
  }
}

}  // namespace hyb
