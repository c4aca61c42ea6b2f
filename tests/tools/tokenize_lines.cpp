// Encodes lines for scripts/fuzz/tokenizer.py.
//
//   tokenize_lines TOKENIZER.json [--add-special] < LINES
//     Every line is a JSON string. Writes one JSON line each: {"ids": [...], "text": decoded,
//     "plain": decoded without special tokens, "stream": the same through a TextStream}, or
//     {"error": ...}.
//   tokenize_lines TOKENIZER.json --bench FILE
//     Writes the processor time to load the tokenizer and to encode the file as one text.

#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/text/tokenizer.h"

using namespace hyb;

namespace {

/// Of this process, so that a busy machine does not count.
double processor_seconds() {
  return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorKind::model, path + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

Json answer(const Tokenizer& tokenizer, const std::string& line, const EncodeOptions& options) {
  Json out = Json::object();
  try {
    const auto text = parse_json(line, "line").get<std::string>();
    const auto tokens = tokenizer.encode(text, options);
    std::vector<std::int32_t> ids;
    std::string streamed;
    TextStream stream(tokenizer);
    for (const TokenId token : tokens) {
      ids.push_back(index(token));
      streamed += stream.push(token);
    }
    streamed += stream.flush();
    out["ids"] = ids;
    out["text"] = tokenizer.decode(tokens, false);
    out["plain"] = tokenizer.decode(tokens, true);
    out["stream"] = streamed;
  } catch (const std::exception& error) {
    out["error"] = error.what();
  }
  return out;
}

void bench(const Tokenizer& tokenizer, const std::string& path) {
  const std::string text = read_file(path);
  for (int i = 0; i < 3; ++i) {
    const double begin = processor_seconds();
    const std::size_t tokens = tokenizer.encode(text, {}).size();
    const double seconds = processor_seconds() - begin;
    std::printf("encoded %zu bytes to %zu tokens in %.3f s: %.1f MB/s\n", text.size(), tokens,
                seconds, static_cast<double>(text.size()) / 1e6 / seconds);
  }
}

int run(int count, char** words) {
  if (count < 2) throw Error(ErrorKind::usage, "tokenize_lines TOKENIZER.json [options]");
  const std::string option = count > 2 ? words[2] : "";
  const std::string file = read_file(words[1]);
  const double begin = processor_seconds();
  const Tokenizer tokenizer = Tokenizer::from_json(file, words[1]);
  if (option == "--bench") {
    std::printf("loaded %zu bytes in %.1f ms\n", file.size(), (processor_seconds() - begin) * 1e3);
    bench(tokenizer, words[3]);
    return 0;
  }
  EncodeOptions options{.add_special_tokens = option == "--add-special", .parse_special = true};
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << to_text(answer(tokenizer, line, options)) << '\n';
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(count, words);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
