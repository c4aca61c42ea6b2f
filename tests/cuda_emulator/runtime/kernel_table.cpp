#include "tests/cuda_emulator/runtime/kernel_table.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/cuda_emulator/device/accesses.h"
#include "tests/cuda_emulator/device/grid.h"

namespace emulator {
namespace {

std::vector<std::string> columns_of(const std::string& line) {
  std::vector<std::string> columns;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = line.find('\t', begin);
    columns.push_back(line.substr(begin, end - begin));
  }
  return columns;
}

std::map<std::string, KernelNeeds> read_table() {
  std::ifstream file(HYB_PTXAS_TABLE);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> header = columns_of(line);
  std::map<std::string, KernelNeeds> table;
  while (std::getline(file, line)) {
    const std::vector<std::string> columns = columns_of(line);
    KernelNeeds& needs = table[columns.at(1)];
    for (std::size_t i = 2; i < columns.size(); ++i) {
      const int value = std::atoi(columns[i].c_str());
      const bool is_registers = header.at(i).starts_with("registers_");
      if (is_registers) needs.registers = std::max(needs.registers, value);
      if (header[i] == "shared_bytes") needs.shared_bytes = static_cast<std::size_t>(value);
    }
  }
  return table;
}

}  // namespace

KernelNeeds needs_of(const void* kernel) {
  static const std::map<std::string, KernelNeeds> table = read_table();
  const auto found = table.find(kernel_name(kernel));
  return found == table.end() ? KernelNeeds{} : found->second;
}

unsigned registers_of_block(const KernelNeeds& needs, unsigned threads) {
  constexpr unsigned parts = 4, unit = 8;
  const unsigned warps = (threads + lanes_per_warp - 1) / lanes_per_warp;
  const unsigned each = (static_cast<unsigned>(needs.registers) + unit - 1) / unit * unit;
  return (warps + parts - 1) / parts * parts * lanes_per_warp * each;
}

}  // namespace emulator
