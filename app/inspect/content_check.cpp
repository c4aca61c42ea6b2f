#include "app/inspect/content_check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/base/texts.h"
#include "app/request/model_texts.h"
#include "app/ui/progress.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "kernels/linear/gguf_blocks.h"

namespace hyb::app {
namespace {

/// Range of a tensor's numbers as bits without the sign: NaN is above infinity, which is above all
/// others.
struct Values {
  std::uint64_t largest = 0, least = ~std::uint64_t{0};
  bool has_negative = false;

  void add(const Values& other) {
    largest = std::max(largest, other.largest);
    least = std::min(least, other.least);
    has_negative |= other.has_negative;
  }
};

template <typename Bits>
Values values_of(std::span<const std::byte> bytes) {
  constexpr Bits sign = Bits(Bits{1} << (8 * sizeof(Bits) - 1));
  Bits largest = 0, least = Bits(~Bits{0}), all = 0;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Bits)) {
    Bits value;
    std::memcpy(&value, bytes.data() + at, sizeof(Bits));
    const Bits magnitude = Bits(value & Bits(~sign));
    largest = std::max(largest, magnitude);
    least = std::min(least, magnitude);
    all = Bits(all | value);
  }
  return {.largest = largest, .least = least, .has_negative = (all & sign) != 0};
}

/// The bits of a type's infinity without the sign; NaN is above it. F8_E4M3 has no infinity: 0x7e
/// is its largest number.
struct FloatBits {
  DType dtype;
  std::uint64_t infinity;
  bool has_infinity;
  Values (*values_of)(std::span<const std::byte>);
};

constexpr FloatBits float_types[] = {
    {DType::f64, 0x7FF0'0000'0000'0000, true, values_of<std::uint64_t>},
    {DType::f32, 0x7F80'0000, true, values_of<std::uint32_t>},
    {DType::f16, 0x7C00, true, values_of<std::uint16_t>},
    {DType::bf16, 0x7F80, true, values_of<std::uint16_t>},
    {DType::f8_e4m3, 0x7E, false, values_of<std::uint8_t>},
    {DType::f8_e5m2, 0x7C, true, values_of<std::uint8_t>},
};

const FloatBits* float_bits(DType dtype) {
  const auto found = std::find_if(std::begin(float_types), std::end(float_types),
                                  [&](const FloatBits& type) { return type.dtype == dtype; });
  return found == std::end(float_types) ? nullptr : found;
}

/// Looks at the scales and minima of blocks, which alone can be no number.
Values scales_of(const GgufBlock& block, std::span<const std::byte> bytes) {
  Values values;
  kernels::GgufGroups groups;
  for (std::size_t at = 0; at < bytes.size(); at += block.bytes) {
    kernels::read_gguf_block(block.type, bytes.data() + at, groups);
    const std::size_t count = block.elements / static_cast<std::size_t>(groups.group);
    const auto add = [&](const std::array<float, kernels::GgufGroups::groups_max>& numbers) {
      values.add(values_of<std::uint32_t>(std::as_bytes(std::span(numbers).first(count))));
    };
    add(groups.scales);
    if (groups.has_mins) add(groups.mins);
  }
  return values;
}

bool is_scale(std::string_view name) {
  return name.ends_with("_scale") || name.ends_with("_scale_inv");
}

/// True of scales of whole numbers, whose range is not symmetric: `hyb quantize` turns it around by
/// a scale below 0 where that is nearer. The sign of NVFP4's E4M3 scales does not count.
bool may_be_negative(std::string_view name, DType dtype, const TensorFiles& files) {
  constexpr std::string_view end = "_scale";
  return name.ends_with(end) && dtype != DType::f8_e4m3 &&
         files.find(std::string(name.substr(0, name.size() - end.size())) + "_packed") != nullptr;
}

void judge(const TensorRow& row, const FloatBits& type, const Values& values, bool is_signed,
           ContentCheck& check) {
  const bool is_needed = row.verdict == TensorVerdict::right;
  std::vector<Finding>& faults = is_needed ? check.defects : check.notes;
  if (values.largest > type.infinity) {
    faults.push_back({row.name, "has NaN"});
  } else if (type.has_infinity && values.largest == type.infinity) {
    faults.push_back({row.name, "has an infinity"});
  } else if (is_scale(row.name) && (values.least == 0 || (values.has_negative && !is_signed))) {
    faults.push_back({row.name, "has a scale that is not above 0"});
  } else if (values.largest == 0) {
    check.notes.push_back({row.name, "is all zeros"});
  }
}

}  // namespace

void check_weight_values(const TensorCheck& tensors, TensorFiles& files, ContentCheck& check,
                         const BytesRead& progress) {
  constexpr std::size_t chunk = std::size_t{8} << 20;  // a multiple of every type's size
  const auto started = std::chrono::steady_clock::now();
  files.map();
  for (const TensorRow& row : tensors.rows) {
    const TensorInfo* const info = files.find(row.name);
    if (info == nullptr || info->size_bytes() == 0 || !info->fault.empty()) continue;
    const GgufBlock* const block = info->block;
    if (block != nullptr && !kernels::is_gguf_coded(block->type)) continue;
    const FloatBits* const type = float_bits(block != nullptr ? DType::f32 : info->dtype);
    if (type == nullptr) continue;
    const std::span<const std::byte> bytes = files.view(row.name).bytes;
    const std::size_t step = block != nullptr ? chunk / block->bytes * block->bytes : chunk;
    Values values;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      const std::size_t size = std::min(step, bytes.size() - at);
      const auto part = bytes.subspan(at, size);
      values.add(block != nullptr ? scales_of(*block, part) : type->values_of(part));
      check.bytes += size;
      progress(check.bytes);
    }
    ++check.tensors;
    judge(row, *type, values, may_be_negative(row.name, info->dtype, files), check);
    files.drop(row.name);
  }
  check.duration = std::chrono::steady_clock::now() - started;
}

namespace {

/// Scripts, spaces, digits, code and an emoji.
constexpr std::string_view sample_texts[] = {
    "The quick brown fox jumps over 13 lazy dogs.",
    "def f(x):\n    return x ** 2  # two\n\t\n",
    "Größe, naïve façade; Привет, мир! 你好，世界。 こんにちは 😀",
    "12345678901234567890 3.14159 -1e-5",
};

void check_samples(const Tokenizer& tokenizer, const std::string& file, std::int32_t vocab,
                   ContentCheck& check) {
  for (const std::string_view text : sample_texts) {
    const std::string shown = fmt::format("the text \"{}...\"", text.substr(0, 12));
    const std::vector<TokenId> tokens = tokenizer.encode(text, {});
    const auto is_out = [&](TokenId token) { return index(token) < 0 || index(token) >= vocab; };
    if (tokens.empty() || std::any_of(tokens.begin(), tokens.end(), is_out)) {
      check.defects.push_back(
          {file, shown + (tokens.empty() ? " has no tokens" : " has tokens out of range")});
      continue;
    }
    const std::string decoded = tokenizer.decode(tokens, false);
    if (decoded == text) continue;
    if (tokenizer.decode(tokenizer.encode(decoded, {}), false) == decoded) {
      check.notes.push_back({file, shown + " comes back changed: it is normalised, or has letters "
                                           "that the vocabulary lacks"});
    } else {
      check.defects.push_back({file, shown + " comes back changed, each time to another text"});
    }
  }
}

/// bos_token, eos_token and pad_token of tokenizer_config.json: a text, or an object with one.
void check_named_tokens(const ModelSource& source, const Tokenizer& tokenizer,
                        ContentCheck& check) {
  constexpr const char* file = "tokenizer_config.json";
  const auto text = source.read(file);
  if (!text) return;
  const Json config = parse_json(*text, source.path_of(file), {.python_numbers = true});
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const auto found = config.find(key);
    if (found == config.end()) continue;
    const Json& name = found->is_object() ? found->value("content", Json()) : *found;
    if (!name.is_string() || tokenizer.find(name.get<std::string>())) continue;
    check.defects.push_back(
        {file, fmt::format("{} \"{}\" is not in the vocabulary", key, name.get<std::string>())});
  }
}

}  // namespace

void check_tokenizer(const ModelSource& source, const models::Plan& plan, ContentCheck& check) {
  const std::string file = source.is_gguf() ? "the tokenizer" : source.tokenizer_file();
  try {
    const ModelTexts texts = read_texts(source);
    if (!texts.tokenizer) {
      check.notes.push_back({file, "is not there"});
      return;
    }
    const Tokenizer& tokenizer = *texts.tokenizer;
    if (tokenizer.size() != plan.vocab) {
      check.notes.push_back({file, fmt::format("has ids up to {}, the embedding has {} rows",
                                               tokenizer.size() - 1, plan.vocab)});
    }
    if (texts.stop_tokens.empty()) check.notes.push_back({file, "no token ends an answer"});
    check_named_tokens(source, tokenizer, check);
    check_samples(tokenizer, file, plan.vocab, check);
  } catch (const Error& error) {
    check.defects.push_back({file, error.what()});
  }
}

std::string content_text(const ContentCheck& check) {
  const double seconds = std::chrono::duration<double>(check.duration).count();
  std::string text =
      fmt::format("checked {}, {} in {:.1f} s ({:.1f} GB/s): {}, {}\n",
                  counted(check.tensors, "tensor"), bytes_text(check.bytes), seconds,
                  static_cast<double>(check.bytes) / std::max(seconds, 1e-9) / 1e9,
                  check.defects.empty() ? "no defects" : counted(check.defects.size(), "defect"),
                  counted(check.notes.size(), "note"));
  for (const Finding& defect : check.defects) {
    text += "  defect: " + sanitized_line(defect.name + ": " + defect.text) + '\n';
  }
  std::map<std::string, std::vector<std::string>> notes;  // by text
  for (const Finding& note : check.notes) notes[note.text].push_back(note.name);
  for (const auto& [what, names] : notes) {
    const std::string more =
        names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : std::string();
    text += "  note: " + sanitized_line(names.front() + more + ": " + what) + '\n';
  }
  return text;
}

Json content_json(const ContentCheck& check) {
  const auto list = [](const std::vector<Finding>& findings) {
    Json json = Json::array();
    for (const Finding& finding : findings) {
      json.push_back({{"name", finding.name}, {"text", finding.text}});
    }
    return json;
  };
  return {{"tensors", check.tensors},
          {"bytes", check.bytes},
          {"seconds", std::chrono::duration<double>(check.duration).count()},
          {"defects", list(check.defects)},
          {"notes", list(check.notes)}};
}

}  // namespace hyb::app
