#include "core/base/log.h"

#include <algorithm>
#include <atomic>
#include <mutex>

// fmt and spdlog are packaged as shared libraries only. hyb uses them header-only, and this file
// holds the one instantiation of fmt that the other files link against.
#include <fmt/format-inl.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

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

using Sink = spdlog::sinks::stderr_color_sink_mt;

Sink& sink() {
  static Sink instance;
  return instance;
}

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    // The sink lives as long as the process: spdlog's pointer does not own it.
    spdlog::logger made("hyb", spdlog::sink_ptr(spdlog::sink_ptr(), &sink()));
    made.set_pattern("hyb: %^%l%$: %v");
    return made;
  }();
  return instance;
}

using Filter = std::string (*)(std::string_view);

std::atomic<Filter>& filter_of_messages() {
  static std::atomic<Filter> instance = nullptr;
  return instance;
}

void print(spdlog::level::level_enum level, std::string_view text) {
  const Filter filter = filter_of_messages();
  if (filter == nullptr) {
    logger().log(level, text);
  } else {
    logger().log(level, filter(text));
  }
}

}  // namespace

std::optional<Level> level_from_name(std::string_view name) {
  const auto* const found = std::find(level_names.begin(), level_names.end(), name);
  if (found == level_names.end()) return std::nullopt;
  return static_cast<Level>(found - level_names.begin());
}

void set_level(Level level) {
  constexpr std::array levels = {spdlog::level::trace, spdlog::level::debug, spdlog::level::info,
                                 spdlog::level::warn,  spdlog::level::err,   spdlog::level::off};
  logger().set_level(levels[static_cast<std::size_t>(level)]);
}

void set_colour(bool colour) {
  sink().set_color_mode(colour ? spdlog::color_mode::always : spdlog::color_mode::never);
}

void set_filter(std::string (*filter)(std::string_view)) { filter_of_messages() = filter; }

void while_silent(const std::function<void()>& action) {
  const std::lock_guard lock(spdlog::details::console_mutex::mutex());
  action();
}

void debug(std::string_view text) { print(spdlog::level::debug, text); }
void info(std::string_view text) { print(spdlog::level::info, text); }
void warning(std::string_view text) { print(spdlog::level::warn, text); }
void error(std::string_view text) { print(spdlog::level::err, text); }

}  // namespace hyb::log
