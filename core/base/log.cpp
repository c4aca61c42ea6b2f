#include "core/base/log.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>

// fmt is packaged as a shared library only. hyb uses it header-only, and this file holds the one
// instantiation that the other files link against.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, string_view, basic_format_args<buffer_context<char>>,
                         locale_ref);

}  // namespace detail
FMT_END_NAMESPACE

namespace hyb::log {
namespace {

std::mutex printing;
std::atomic<Level> least = Level::info;
std::atomic<bool> is_coloured = false;
std::atomic<std::string (*)(std::string_view)> filter_of_messages = nullptr;

void print(Level level, std::string_view colour, std::string_view name, std::string_view text) {
  if (level < least) return;
  const auto filter = filter_of_messages.load();
  const std::string message = filter == nullptr ? std::string(text) : filter(text);
  const std::string line = is_coloured ? fmt::format("hyb: {}{}\x1b[m: {}\n", colour, name, message)
                                       : fmt::format("hyb: {}: {}\n", name, message);
  const std::lock_guard lock(printing);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

std::optional<Level> level_from_name(std::string_view name) {
  const auto* const found = std::find(level_names.begin(), level_names.end(), name);
  if (found == level_names.end()) return std::nullopt;
  return static_cast<Level>(found - level_names.begin());
}

void set_level(Level level) { least = level; }

bool is_shown(Level level) { return level >= least; }

void set_colour(bool colour) { is_coloured = colour; }

void set_filter(std::string (*filter)(std::string_view)) { filter_of_messages = filter; }

void while_silent(const std::function<void()>& action) {
  const std::lock_guard lock(printing);
  action();
}

void debug(std::string_view text) { print(Level::debug, "\x1b[36m", "debug", text); }
void info(std::string_view text) { print(Level::info, "\x1b[32m", "info", text); }
void warning(std::string_view text) { print(Level::warn, "\x1b[33m\x1b[1m", "warning", text); }
void error(std::string_view text) { print(Level::error, "\x1b[31m\x1b[1m", "error", text); }

}  // namespace hyb::log
