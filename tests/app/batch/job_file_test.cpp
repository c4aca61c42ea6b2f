#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "app/batch/job_file.h"
#include "core/base/error.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace job_file_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

TEST_SUITE("app/batch/job_file") {
  TEST_CASE("what was written is read, a damaged file is named") {
    const TemporaryFolder folder;
    const auto path = JobFile::beside(folder.path() / "out");
    CHECK_FALSE(JobFile::read(path));
    const Json job = {{"input", {{"xxh3", "a"}}}, {"settings", {{"temperature", 0.1F}}}};
    JobFile::write(path, job);
    CHECK(job_difference(JobFile::read(path).value(), job).empty());
    JobFile::write(path, Json::object());
    CHECK(JobFile::read(path).value().empty());
    for (const char* text : {"", "[]", "{\"a\":"}) {
      folder.write("out.job", text);
      CHECK(contains(model_error([&] { JobFile::read(path); }), "out.job"));
    }
    CHECK_THROWS_AS(JobFile::write(folder.path() / "absent" / "x.job", job), Error);
  }

  TEST_CASE("the first difference is named, names are not compared") {
    const Json was = {{"hyb", "1"},
                      {"model", {{"name", "a"}, {"xxh3", "1"}}},
                      {"settings", {{"temperature", 0.5}, {"stop", Json::array()}}}};
    Json is = was;
    is["hyb"] = "2";
    is["model"]["name"] = "b";
    is["last_run"] = {{"seconds", 1}};
    CHECK(job_difference(was, is).empty());
    is["settings"]["temperature"] = 0.7;
    CHECK(job_difference(was, is) == "--temperature is 0.7, was 0.5");
    is["settings"].erase("stop");  // as an empty one
    is["settings"]["top_k"] = 5;
    is["settings"]["batch_invariant"] = true;
    is["settings"]["truncate"] = 1;
    is["settings"]["think"] = false;
    CHECK(job_difference(was, is) ==
          "--batch-invariant is given, was not given; --temperature is 0.7, was 0.5; --think is "
          "off, was not given; --top-k is 5, was not given; --truncate is left, was not given");
    CHECK_FALSE(job_difference(Json::object(), was).empty());
  }

  TEST_CASE("inputs and files of the model are named with what is known of them, never by a hash") {
    const Json was = {
        {"input",
         {{"name", "in"}, {"format", "text"}, {"bytes", 10}, {"lines", 2}, {"xxh3", "h1"}}},
        {"model",
         {{"name", "m"},
          {"xxh3", "h2"},
          {"texts", {{"config.json", "h3"}, {"generation_config.json", nullptr}}}}}};
    Json is = was;
    is["input"]["xxh3"] = "h9";
    CHECK(job_difference(was, is) ==
          "the input in (2 lines, 10 bytes) was edited: other text of the same size");
    is["input"]["bytes"] = 12;
    is["input"]["name"] = "in2";
    CHECK(job_difference(was, is) ==
          "the input is in2 (2 lines, 12 bytes), was in (2 lines, 10 bytes)");
    is = was;
    is["model"]["xxh3"] = "h9";
    CHECK(job_difference(was, is) == "the model's weights were changed");
    is["model"].erase("texts");  // as before they were known
    CHECK(contains(job_difference(is, was), "the model's files were changed"));
    is = was;
    is["model"]["xxh3"] = "h9";
    is["model"]["texts"]["config.json"] = "h9";
    is["model"]["texts"]["generation_config.json"] = "h9";
    is["model"]["name"] = "n";
    CHECK(job_difference(was, is) ==
          "the model is \"n\", was \"m\"; the model's config.json was changed; the model's "
          "generation_config.json is new");
    is["settings"] = {{"random_weights", 7}};  // whatever the files are
    CHECK(job_difference(was, is) == "--random-weights is 7, was not given");
  }

  TEST_CASE("weight files are the same by stamp or by hash, or have to be read first") {
    const auto file = [](std::uint64_t bytes, std::int64_t changed_ns, const Json& hash) {
      return Json{{"bytes", bytes},
                  {"inode", 1},
                  {"modified_ns", 2},
                  {"changed_ns", changed_ns},
                  {"xxh3", hash}};
    };
    const Json was = {{"a", file(10, 3, "x")}, {"b", file(20, 3, nullptr)}};
    CHECK(weights_difference(nullptr, was).text.empty());
    CHECK_FALSE(weights_difference(was, was).is_pending);
    Json is = was;
    is["a"] = file(10, 4, "x");
    CHECK(weights_difference(was, is).text.empty());
    is["a"] = file(10, 4, nullptr);
    CHECK(weights_difference(was, is).is_pending);
    CHECK(weights_difference(was, is).text.empty());
    is["a"] = file(10, 4, "y");
    CHECK(contains(weights_difference(was, is).text, "file a has other bytes than it had"));
    is["a"] = file(11, 4, "y");
    CHECK(contains(weights_difference(was, is).text, "file a has 11 bytes, had 10"));
    is = was;
    is["b"] = file(20, 4, "y");
    CHECK(contains(weights_difference(was, is).text, "can't be known"));
    is.erase("b");
    CHECK(contains(weights_difference(was, is).text, "file b is gone"));
    CHECK(contains(weights_difference(is, was).text, "file b is new"));
    // The only file may have another name.
    const Json one = {{"a.gguf", file(10, 3, "x")}};
    CHECK(weights_difference(one, {{"b.gguf", file(10, 4, "x")}}).text.empty());
    CHECK(weights_difference(one, {{"b.gguf", file(10, 4, nullptr)}}).is_pending);
    CHECK(contains(weights_difference(one, {{"b.gguf", file(10, 4, "y")}}).text,
                   "file b.gguf has other bytes"));
  }
}

}  // namespace job_file_test
