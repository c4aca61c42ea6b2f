#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "app/batch/batch_job.h"
#include "core/base/error.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace batch_job_test {

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
    CHECK(job_difference(was, is) == "settings.temperature is 0.7, was 0.5");
    is = was;
    is["settings"].erase("stop");
    CHECK(job_difference(was, is) == "settings.stop is null, was []");
    is = was;
    is["settings"]["new"] = true;
    CHECK(job_difference(was, is) == "settings.new is true, was null");
    CHECK_FALSE(job_difference(Json::object(), was).empty());
  }
}

}  // namespace batch_job_test
