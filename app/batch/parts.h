#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/batch/input_file.h"

namespace hyb::app {

/// A share of the lines of a batch, which other processes or machines answer beside the others.
struct Part {
  std::int32_t number = 1, count = 1;  ///< from 1 to count

  std::string text() const { return std::to_string(number) + "/" + std::to_string(count); }

  /// Reads "3/16". Throws Error(usage).
  static Part of(const std::string& text);
};

/// The part of each line, as indices of input.lines(): 1 to `count`. It follows from the prompts of
/// the file alone. Prompts that begin alike stay together, so that each part reuses what its lines
/// share; the parts are about as large as each other, counted in bytes of prompts, and a group of
/// more than half a part is cut where its prompts have the least in common.
std::vector<std::int32_t> split_lines(const InputFile& input, std::int32_t count);

/// Forgets all lines but those of the part. Throws Error(usage) for an input that came by a pipe.
void keep_part(InputFile& input, const Part& part);

/// Puts the outputs of all parts of a job together, in the order of its input, and writes the job
/// file of the whole. Returns 0, or 5 where results are errors. Throws Error(usage) that names the
/// output: where a part is there twice, is missing or not finished, where outputs belong to
/// different jobs or hold results of other lines, and where `target` holds something.
int merge_parts(std::span<const std::string> outputs, const std::string& target);

}  // namespace hyb::app
