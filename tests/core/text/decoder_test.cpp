#include "core/text/decoder.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "core/text/unicode.h"
#include "tests/support/error_text.h"

namespace text_decoder_test {

using namespace hyb;
using testing::contains;
using testing::model_error;

namespace {

using Pieces = std::vector<std::string>;

std::string decoded(const std::string& json, const Pieces& pieces, bool eager = false) {
  const PieceDecoder decoder(parse_json(json, "f"), "f: decoder");
  PieceDecoder::Run run(decoder, eager);
  std::string out;
  for (const std::string& piece : pieces) {
    run.push(piece, out);
    CHECK(is_well_formed(out));
  }
  run.flush(out);
  return out;
}

std::string bytes_of(const std::string& json, const std::string& piece) {
  return PieceDecoder(parse_json(json, "f"), "f: decoder").bytes_of(piece);
}

std::string error_of(const std::string& json) {
  return model_error([&] { PieceDecoder(parse_json(json, "f"), "f: decoder"); });
}

std::string sequence(const std::string& steps) {
  return R"({"type":"Sequence","decoders":[)" + steps + "]}";
}

const std::string replace = R"({"type":"Replace","pattern":{"String":"▁"},"content":" "})";
const std::string fallback = R"({"type":"ByteFallback"})";
const std::string fuse = R"({"type":"Fuse"})";
const std::string bytes = R"({"type":"ByteLevel"})";

std::string strip(int start, int stop) {
  return R"({"type":"Strip","content":" ","start":)" + std::to_string(start) + R"(,"stop":)" +
         std::to_string(stop) + "}";
}

const std::string llama = sequence(replace + "," + fallback + "," + fuse + "," + strip(1, 0));

}  // namespace

TEST_SUITE("core/text/decoder") {
  TEST_CASE("each kind") {
    CHECK(decoded("null", {"a", "b"}) == "a b");
    CHECK(decoded(bytes, {"Ġa", "Ã", "©"}) == " aé");
    CHECK(decoded(llama, {"▁a", "▁b"}) == "a b");
    CHECK(decoded(llama, {"▁▁a"}) == " a");
    CHECK(decoded(R"({"type":"Metaspace"})", {"▁a▁", "▁b"}) == "a b");
    CHECK(decoded(R"({"type":"Metaspace","prepend_scheme":"never"})", {"▁a", "▁b"}) == " a b");
    CHECK(decoded(strip(1, 1), {" a ", "  b"}) == "a b");
    CHECK(decoded(sequence(""), {"a", "b"}) == "ab");
  }

  TEST_CASE("byte tokens are strict, and a bad run is replaced byte by byte") {
    CHECK(decoded(llama, {"<0xC3>", "<0xA9>", "x"}) == "éx");
    CHECK(decoded(llama, {"<0xC3>", "x"}) == "\uFFFDx");
    CHECK(decoded(llama, {"<0xC3>", "<0xA9>", "<0xFF>"}) == "\uFFFD\uFFFD\uFFFD");
    CHECK(decoded(llama, {"<0xC3>", "<0xA9>", "<0xFF>"}, true) == "é\uFFFD");
    for (const char* piece : {"<0x-1>", "<0xG0>", "<0x+F>", "<0x100>", "<0x 1>", "<0xC3"}) {
      CHECK(decoded(llama, {piece}) == piece);
    }
  }

  TEST_CASE("the bytes of a piece are those it has within a text") {
    CHECK(bytes_of("null", "a") == "a");
    CHECK(bytes_of(bytes, "\u00c3") == "\xC3");
    CHECK(bytes_of(bytes, "\u0120a") == " a");
    CHECK(bytes_of(llama, "<0xC3>") == "\xC3");
    CHECK(bytes_of(llama, "\u2581a") == " a");
    CHECK(bytes_of(R"({"type":"Metaspace"})", "\u2581a") == " a");
    CHECK(bytes_of(strip(1, 1), " a ") == "a");
  }

  TEST_CASE("the ends of the whole text are stripped, whatever the pieces") {
    const std::string both = sequence(fuse + "," + strip(2, 2));
    CHECK(decoded(both, {" ", "  a", " ", " ", "b ", " ", " "}) == " a  b ");
    CHECK(decoded(both, {" "}) == "");
    CHECK(decoded(sequence(fuse + "," + strip(1, 0)), {"", " ", " a"}) == " a");
  }

  TEST_CASE("eager or not, valid text decodes the same") {
    std::mt19937 random(2);
    const Pieces choices = {"▁a", "b", "▁", "é", "<0x41>"};
    const Pieces smile = {"<0xF0>", "<0x9F>", "<0x98>", "<0x80>"};
    for (int round = 0; round < 500; ++round) {
      Pieces pieces;
      for (int i = 0; i < 8; ++i) {
        if (random() % 4 == 0) {
          pieces.insert(pieces.end(), smile.begin(), smile.end());
        } else {
          pieces.push_back(choices[random() % choices.size()]);
        }
      }
      REQUIRE(decoded(llama, pieces, true) == decoded(llama, pieces, false));
    }
  }

  TEST_CASE("flush() resets a run") {
    const PieceDecoder decoder(parse_json(llama, "f"), "f");
    PieceDecoder::Run run(decoder, true);
    for (int round = 0; round < 2; ++round) {
      std::string out;
      run.push("▁a", out);
      run.push("<0xC3>", out);
      CHECK(out == "a");
      run.flush(out);
      CHECK(out == "a\uFFFD");
    }
  }

  TEST_CASE("steps that multiply a piece end in an error, not in the machine's memory") {
    const std::string tenfold =
        R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"})";
    std::string steps = tenfold;
    for (int i = 1; i < 12; ++i) steps += "," + tenfold;
    CHECK(contains(testing::model_error([&] {
                     decoded(sequence(steps), {"b", "a"});
                   }),
                   "f: decoder: its steps add more than 4160 bytes to a text of size 1;"));
    CHECK(contains(testing::model_error([&] { bytes_of(sequence(steps), "a"); }),
                   "its steps add more than 4160 bytes"));
    CHECK(decoded(sequence(tenfold), Pieces(5000, "a")).size() == 50000);
  }

  TEST_CASE("what is unknown or damaged is an error that names it") {
    CHECK(error_of(R"({"type":"CTC"})") == "f: decoder: the decoder \"CTC\" is not supported");
    CHECK(contains(error_of(sequence(fuse + "," + replace)), "\"Replace\" after Fuse"));
    CHECK(contains(error_of(sequence(bytes + "," + bytes)), "after Fuse"));
    CHECK(contains(error_of(strip(-1, 0)), "0 to 1024"));
    CHECK(contains(error_of(R"({"type":"Strip","content":"ab","start":1,"stop":0})"),
                   "one character"));
    CHECK(contains(error_of(R"({"type":"Metaspace","replacement":""})"), "one character"));
    CHECK(contains(error_of("[]"), "object"));
  }
}

}  // namespace text_decoder_test
