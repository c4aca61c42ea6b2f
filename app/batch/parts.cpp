#include "app/batch/parts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "app/batch/batch_job.h"
#include "app/batch/job_file.h"
#include "app/batch/output_file.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/io/file.h"

namespace hyb::app {
namespace {

constexpr std::int32_t parts_max = 9999;
/// Common beginnings of prompts are found in blocks of this many bytes, up to this many of them.
constexpr std::size_t block_bytes = 256, blocks_max = 64;

/// A line as the split sees it: prefixes of its prompt, by their hashes.
struct SplitLine {
  std::uint32_t line;
  std::uint64_t weight;
  std::vector<std::uint64_t> prefixes;  // [i]: of the first i + 1 blocks
};

std::string prompt_text(const RequestLine& line) {
  std::string text;
  for (const char* key : {"tools", "messages", "prompt"}) {
    const auto field = line.body.find(key);
    if (field != line.body.end())
      text += field->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return text;
}

SplitLine split_line(const InputFile& input, std::uint32_t line) {
  const std::string text = prompt_text(input.read(input.lines()[line]));
  // An answer takes time whatever its prompt is.
  SplitLine found = {.line = line, .weight = text.size() + block_bytes, .prefixes = {}};
  std::uint64_t hash = 0;
  const std::size_t blocks = std::min(text.size() / block_bytes, blocks_max);
  for (std::size_t i = 0; i < blocks; ++i) {
    const auto block = std::span(text).subspan(i * block_bytes, block_bytes);
    hash = checksum(std::as_bytes(block), hash);
    found.prefixes.push_back(hash);
  }
  return found;
}

std::size_t blocks_in_common(const SplitLine& a, const SplitLine& b) {
  const auto [end, other] = std::ranges::mismatch(a.prefixes, b.prefixes);
  return static_cast<std::size_t>(end - a.prefixes.begin());
}

/// Returns where a part ends: near the place that makes parts equal, between the prompts there that
/// have the least in common. `sums[i]` is the weight of all lines before line i.
std::size_t cut_near(double wanted, double reach, const std::vector<SplitLine>& lines,
                     const std::vector<double>& sums) {
  const auto first = std::ranges::lower_bound(sums, wanted - reach);
  std::size_t best =
      static_cast<std::size_t>(std::ranges::lower_bound(sums, wanted) - sums.begin());
  const auto common = [&](std::size_t at) {
    return at == 0 || at >= lines.size() ? 0 : blocks_in_common(lines[at - 1], lines[at]);
  };
  std::size_t least = common(best);
  for (auto sum = first; sum != sums.end() && *sum <= wanted + reach; ++sum) {
    const auto at = static_cast<std::size_t>(sum - sums.begin());
    const std::size_t shared = common(at);
    if (shared > least) continue;
    if (shared == least && std::abs(*sum - wanted) >= std::abs(sums[best] - wanted)) continue;
    best = at;
    least = shared;
  }
  return best;
}

}  // namespace

Part Part::of(const std::string& text) {
  Part part;
  const char* const end = text.data() + text.size();
  const auto number = std::from_chars(text.data(), end, part.number);
  if (number.ec == std::errc() && number.ptr != end && *number.ptr == '/') {
    const auto count = std::from_chars(number.ptr + 1, end, part.count);
    if (count.ec == std::errc() && count.ptr == end && part.number >= 1 &&
        part.number <= part.count && part.count <= parts_max) {
      return part;
    }
  }
  throw Error(ErrorKind::usage,
              fmt::format("--part {}: give K/N, as 3/16: part K, from 1 to N, of at most {}", text,
                          parts_max));
}

std::vector<std::int32_t> split_lines(const InputFile& input, std::int32_t count) {
  std::vector<SplitLine> lines;
  for (std::uint32_t i = 0; i < input.lines().size(); ++i) lines.push_back(split_line(input, i));
  std::ranges::sort(lines, [](const SplitLine& a, const SplitLine& b) {
    return std::tie(a.prefixes, a.line) < std::tie(b.prefixes, b.line);
  });
  std::vector<double> sums = {0};
  for (const SplitLine& line : lines) {
    sums.push_back(sums.back() + static_cast<double>(line.weight));
  }
  std::vector<std::int32_t> parts(lines.size());
  const double share = sums.back() / count;
  std::size_t begin = 0;
  for (std::int32_t part = 1; part <= count; ++part) {
    const std::size_t end =
        part == count ? lines.size() : cut_near(share * part, share / 4, lines, sums);
    for (; begin < end; ++begin) parts[lines[begin].line] = part;
  }
  return parts;
}

void keep_part(InputFile& input, const Part& part) {
  if (input.is_piped()) {
    throw Error(ErrorKind::usage, "--part needs a file that every part can read, not a pipe");
  }
  const std::vector<std::int32_t> parts = split_lines(input, part.count);
  std::vector<std::uint32_t> kept;
  for (std::uint32_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == part.number) kept.push_back(i);
  }
  input.keep_lines(kept);
}

namespace {

[[noreturn]] void refuse_output(const std::string& output, const std::string& why) {
  throw Error(ErrorKind::usage, output + ": " + why);
}

/// The output of one part, and where its results lie.
struct PartOutput {
  std::string name;
  Json job;  ///< without the part
  Part part;
};

PartOutput part_output(const std::string& name) {
  const std::filesystem::path path = JobFile::beside(name);
  std::optional<Json> job = JobFile::read(path);
  if (!job)
    refuse_output(name, fmt::format("{} is missing: it is no output of hyb batch", path.string()));
  const Json part = member(member(*job, "settings"), "part");
  if (!part.is_string()) refuse_output(name, "was made without --part: it is whole");
  (*job)["settings"].erase("part");
  return {.name = name, .job = *std::move(job), .part = Part::of(part.get<std::string>())};
}

/// All parts of one job, by number.
std::vector<PartOutput> whole_job(std::span<const std::string> names) {
  std::map<std::int32_t, PartOutput> parts;
  std::optional<PartOutput> first;
  for (const std::string& name : names) {
    PartOutput output = part_output(name);
    if (!first) first = output;
    if (output.part.count != first->part.count) {
      refuse_output(name, fmt::format("is part {}, and {} is part {}", output.part.text(),
                                      first->name, first->part.text()));
    }
    std::string difference = job_difference(first->job, output.job);
    if (difference.empty()) {
      difference = weights_difference(member(member(first->job, "model"), "weights"),
                                      member(member(output.job, "model"), "weights"))
                       .text;
    }
    if (!difference.empty()) {
      refuse_output(name,
                    fmt::format("belongs to another job than {}: {}", first->name, difference));
    }
    const auto [place, is_new] = parts.emplace(output.part.number, output);
    if (!is_new)
      refuse_output(name,
                    fmt::format("is part {}, as {} is", output.part.text(), place->second.name));
  }
  std::vector<std::int32_t> missing;
  for (std::int32_t i = 1; i <= first->part.count; ++i) {
    if (!parts.contains(i)) missing.push_back(i);
  }
  if (!missing.empty()) {
    throw Error(ErrorKind::usage, fmt::format("--merge: of {} parts there is no output of {}",
                                              first->part.count, fmt::join(missing, ", ")));
  }
  std::vector<PartOutput> all;
  for (auto& [number, output] : parts) all.push_back(std::move(output));
  return all;
}

/// The input of the parts, by the path that they were given, else beside the first output.
InputFile input_of(const PartOutput& part) {
  const Json said = member(part.job, "input");
  const Json name = member(said, "name"), hash = member(said, "xxh3");
  const Json format = member(said, "format");
  const auto read_as = format.is_string() ? value_of(line_formats, format.get<std::string>())
                                          : std::optional<LineFormat>();
  if (!name.is_string() || !hash.is_string() || !read_as) {
    refuse_output(part.name, "its job file is damaged: it says nothing of an input");
  }
  std::filesystem::path path = name.get<std::string>();
  const std::filesystem::path beside =
      std::filesystem::path(part.name).parent_path() / path.filename();
  std::error_code absent;
  if (!std::filesystem::exists(path, absent)) {
    if (!std::filesystem::exists(beside, absent)) {
      refuse_output(part.name,
                    fmt::format("its input {} is neither here nor beside it: merge where "
                                "the parts were answered",
                                path.string()));
    }
    path = beside;
  }
  InputFile input = InputFile::open(path.string(), "/tmp");
  if (hex(input.hash()) != hash.get<std::string>()) {
    refuse_output(path.string(), "was changed since its parts were answered");
  }
  const Json filling = member(member(part.job, "settings"), "template");
  std::optional<LineTemplate> lines;
  if (filling.is_string()) lines.emplace(filling.get<std::string>());
  input.scan(read_as, std::move(lines));
  return input;
}

/// Place of a line's result in a file; `bytes` is 0 where there is none yet.
struct ResultPlace {
  const File* file = nullptr;
  std::uint64_t offset = 0, bytes = 0;
};

/// Finds the results of one output; returns how many of them are errors.
std::int64_t find_results(const PartOutput& output, const File& file,
                          const std::map<Hash128, std::size_t>& lines,
                          const std::vector<std::int32_t>& parts,
                          std::vector<ResultPlace>& places) {
  LineReader reader(file.descriptor(), output.name, std::size_t{1} << 30);
  LinePlace place;
  std::string text;
  std::int64_t failed = 0;
  for (std::int64_t number = 1; reader.next(place, text); ++number) {
    const std::optional<ResultMark> mark = read_result(text);
    if (!mark && !place.is_terminated) break;  // torn by a kill: its line has no result
    if (!mark) refuse_output(output.name, fmt::format("line {} is not a result", number));
    const auto line = lines.find(mark->id);
    if (line == lines.end() || parts[line->second] != output.part.number) {
      refuse_output(output.name,
                    fmt::format("line {} is not a result of part {}", number, output.part.text()));
    }
    ResultPlace& result = places[line->second];
    if (result.bytes > 0) {
      refuse_output(output.name,
                    fmt::format("line {} is a second result of the same line", number));
    }
    result = {.file = &file, .offset = place.offset, .bytes = place.bytes};
    failed += mark->failed ? 1 : 0;
  }
  return failed;
}

void write_results(const std::vector<ResultPlace>& places,
                   const std::function<void(std::string_view)>& write) {
  std::string line;
  for (const ResultPlace& place : places) {
    line.resize(place.bytes);
    place.file->read(place.offset, std::as_writable_bytes(std::span(line)));
    line += '\n';
    write(line);
  }
}

}  // namespace

int merge_parts(std::span<const std::string> outputs, const std::string& target) {
  if (outputs.empty()) {
    throw Error(ErrorKind::usage, "--merge: name the outputs: hyb batch --merge OUT... -o ALL");
  }
  std::error_code absent;
  if (!is_stdout(target) && std::filesystem::file_size(target, absent) > 0 && !absent) {
    refuse_output(target, "holds something: choose another output");
  }
  const std::vector<PartOutput> parts = whole_job(outputs);
  const InputFile input = input_of(parts.front());
  const std::vector<std::int32_t> part_of_line =
      split_lines(input, static_cast<std::int32_t>(parts.size()));
  std::map<Hash128, std::size_t> lines;
  for (std::size_t i = 0; i < input.lines().size(); ++i) lines.emplace(input.lines()[i].id, i);
  std::vector<ResultPlace> places(input.lines().size());
  std::vector<std::unique_ptr<File>> files;
  std::int64_t failed = 0;
  for (const PartOutput& part : parts) {
    files.push_back(std::make_unique<File>(part.name));
    failed += find_results(part, *files.back(), lines, part_of_line, places);
  }
  std::vector<std::int64_t> left(parts.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].bytes == 0) ++left[static_cast<std::size_t>(part_of_line[i] - 1)];
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (left[i] == 0) continue;
    refuse_output(parts[i].name, fmt::format("lacks {} of part {}: repeat the command that made it",
                                             counted(left[i], "result"), parts[i].part.text()));
  }
  if (is_stdout(target)) {
    write_results(places, [](std::string_view line) { write_output(line); });
  } else {
    AtomicFile merged(target, FileAccess::umask);
    write_results(places, [&](std::string_view line) { merged.write(line); });
    merged.commit();
    Json job = parts.front().job;
    job["input"]["lines"] = places.size();
    job.erase("last_run");
    JobFile::write(JobFile::beside(target), job);
  }
  write_note(fmt::format("{} of {}, {} failed\n", counted(std::ssize(places), "line"),
                         counted(std::ssize(parts), "part"), failed));
  return failed > 0 ? failed_lines_exit : 0;
}

}  // namespace hyb::app
