#include "app/ui/keys.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace hyb::app {
namespace {

constexpr char escape = '\x1b';
constexpr char control_x = '\x18', control_e = '\x05';
constexpr std::string_view paste_end = "\x1b[201~";

template <typename Name>
struct Meaning {
  Name name;
  Key::Kind kind;
};

constexpr std::array control_keys = {
    Meaning<char>{'\x01', Key::Kind::home},
    Meaning<char>{'\x02', Key::Kind::left},
    Meaning<char>{'\x03', Key::Kind::interrupt},
    Meaning<char>{'\x04', Key::Kind::end_of_input},
    Meaning<char>{'\x05', Key::Kind::end},
    Meaning<char>{'\x06', Key::Kind::right},
    Meaning<char>{'\x07', Key::Kind::abort},
    Meaning<char>{'\x08', Key::Kind::erase_left},
    Meaning<char>{'\x09', Key::Kind::tab},
    Meaning<char>{'\x0a', Key::Kind::line_break},
    Meaning<char>{'\x0b', Key::Kind::kill_to_end},
    Meaning<char>{'\x0c', Key::Kind::clear_screen},
    Meaning<char>{'\x0d', Key::Kind::enter},
    Meaning<char>{'\x0e', Key::Kind::history_forward},
    Meaning<char>{'\x10', Key::Kind::history_back},
    Meaning<char>{'\x12', Key::Kind::search},
    Meaning<char>{'\x15', Key::Kind::kill_to_begin},
    Meaning<char>{'\x17', Key::Kind::kill_word_left},
    Meaning<char>{'\x19', Key::Kind::yank},
    Meaning<char>{'\x1a', Key::Kind::suspend},
    Meaning<char>{'\x7f', Key::Kind::erase_left},
};

// After Escape: what Alt with a key sends.
constexpr std::array alt_keys = {
    Meaning<char>{'\r', Key::Kind::line_break},
    Meaning<char>{'\n', Key::Kind::line_break},
    Meaning<char>{'b', Key::Kind::word_left},
    Meaning<char>{'f', Key::Kind::word_right},
    Meaning<char>{'d', Key::Kind::kill_word_right},
    Meaning<char>{'\x7f', Key::Kind::kill_word_left},
    Meaning<char>{'\x08', Key::Kind::kill_word_left},
};

// Parameters and final byte of a control sequence, as xterm, rxvt, the Linux console and the
// kitty protocol send them. ESC O x counts as ESC [ x.
constexpr std::array sequences = {
    Meaning<std::string_view>{"A", Key::Kind::up},
    Meaning<std::string_view>{"B", Key::Kind::down},
    Meaning<std::string_view>{"C", Key::Kind::right},
    Meaning<std::string_view>{"D", Key::Kind::left},
    Meaning<std::string_view>{"H", Key::Kind::home},
    Meaning<std::string_view>{"F", Key::Kind::end},
    Meaning<std::string_view>{"M", Key::Kind::enter},
    Meaning<std::string_view>{"1~", Key::Kind::home},
    Meaning<std::string_view>{"7~", Key::Kind::home},
    Meaning<std::string_view>{"4~", Key::Kind::end},
    Meaning<std::string_view>{"8~", Key::Kind::end},
    Meaning<std::string_view>{"3~", Key::Kind::erase_right},
    Meaning<std::string_view>{"3;5~", Key::Kind::kill_word_right},
    Meaning<std::string_view>{"1;5C", Key::Kind::word_right},
    Meaning<std::string_view>{"1;5D", Key::Kind::word_left},
    Meaning<std::string_view>{"1;3C", Key::Kind::word_right},
    Meaning<std::string_view>{"1;3D", Key::Kind::word_left},
    Meaning<std::string_view>{"c", Key::Kind::word_right},
    Meaning<std::string_view>{"d", Key::Kind::word_left},
    Meaning<std::string_view>{"13;2u", Key::Kind::line_break},
    Meaning<std::string_view>{"13;3u", Key::Kind::line_break},
    Meaning<std::string_view>{"27;2;13~", Key::Kind::line_break},
};

template <typename Table, typename Name>
std::optional<Key::Kind> meaning_of(const Table& table, const Name& name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const auto& row) { return row.name == name; });
  if (found == table.end()) return std::nullopt;
  return found->kind;
}

bool is_control(char byte) { return static_cast<unsigned char>(byte) < 0x20 || byte == '\x7f'; }

/// Terminals send a carriage return for each line break of a paste; some send both.
std::string with_line_breaks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\r') {
      out += text[at];
    } else if (at + 1 == text.size() || text[at + 1] != '\n') {
      out += '\n';
    }
  }
  return out;
}

void append_text(std::string text, std::vector<Key>& keys) {
  if (text.empty()) return;
  if (!keys.empty() && keys.back().kind == Key::Kind::text) {
    keys.back().text += text;
  } else {
    keys.push_back({Key::Kind::text, std::move(text)});
  }
}

}  // namespace

void KeyDecoder::push_plain(char byte, std::vector<Key>& keys) {
  std::string text;
  if (!is_control(byte)) {
    characters_.push({&byte, 1}, text);
    append_text(std::move(text), keys);
    return;
  }
  characters_.flush(text);
  append_text(std::move(text), keys);
  if (byte == escape) {
    phase_ = Phase::escape;
  } else if (byte == control_x) {
    phase_ = Phase::control_x;
  } else if (const auto kind = meaning_of(control_keys, byte)) {
    keys.push_back({*kind});
  }
}

void KeyDecoder::push_escaped(char byte, std::vector<Key>& keys) {
  if (byte == escape) return;  // Escape twice: the second may begin a sequence
  parameters_.clear();
  phase_ = byte == '[' ? Phase::parameters : byte == 'O' ? Phase::single_shift : Phase::plain;
  if (phase_ != Phase::plain) return;
  if (const auto kind = meaning_of(alt_keys, byte)) keys.push_back({*kind});
}

void KeyDecoder::end_sequence(char final, std::vector<Key>& keys) {
  phase_ = Phase::plain;
  parameters_ += final;
  if (parameters_ == "200~") {
    phase_ = Phase::paste;
  } else if (const auto kind = meaning_of(sequences, std::string_view(parameters_))) {
    keys.push_back({*kind});
  }
}

void KeyDecoder::push_byte(char byte, std::vector<Key>& keys) {
  constexpr std::size_t parameters_max = 64;
  switch (phase_) {
    case Phase::plain:
      return push_plain(byte, keys);
    case Phase::escape:
      return push_escaped(byte, keys);
    case Phase::single_shift:
      return end_sequence(byte, keys);
    case Phase::control_x:
      phase_ = Phase::plain;
      if (byte != control_e) return push_plain(byte, keys);
      return keys.push_back({Key::Kind::editor});
    case Phase::paste:
      return;
    case Phase::parameters:
      break;
  }
  if (byte >= '@' && byte <= '~') return end_sequence(byte, keys);
  if (is_control(byte) || parameters_.size() == parameters_max) {  // damaged: start over
    phase_ = Phase::plain;
    return push_plain(byte, keys);
  }
  parameters_ += byte;
}

std::size_t KeyDecoder::push_paste(std::string_view bytes, std::vector<Key>& keys) {
  // The mark may lie across two reads: the last bytes of the one before are searched again.
  const std::size_t searched = paste_.size() - std::min(paste_.size(), paste_end.size() - 1);
  const std::size_t before = paste_.size();
  paste_ += bytes;
  const std::size_t found = paste_.find(paste_end, searched);
  if (found == std::string::npos) return bytes.size();
  paste_.resize(found);
  keys.push_back({Key::Kind::paste, with_line_breaks(paste_)});
  paste_ = {};
  phase_ = Phase::plain;
  return found + paste_end.size() - before;
}

void KeyDecoder::push(std::string_view bytes, std::vector<Key>& keys) {
  while (!bytes.empty()) {
    if (phase_ == Phase::paste) {
      bytes.remove_prefix(push_paste(bytes, keys));
    } else {
      push_byte(bytes.front(), keys);
      bytes.remove_prefix(1);
    }
  }
}

}  // namespace hyb::app
