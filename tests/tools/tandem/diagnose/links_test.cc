// The links of updates.jsonl: read, compared, and written about.
#include "tools/tandem/diagnose/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/config/load.h"
#include "common/config/to_yaml.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tools/tandem/diagnose/report.h"

namespace tandem::diagnose {
namespace {

using nlohmann::json;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class LinksTest : public ::testing::Test {
 protected:
  // `rate` answers bytes per second of an update over a link.
  void Write(int64_t updates,
             const std::function<double(int64_t, const std::string&, const std::string&)>& rate,
             double bytes = 8e6, const std::string& transport = "socket") {
    std::string text;
    for (int64_t version = 1; version <= updates; ++version) {
      json links = json::array();
      const auto add = [&](const std::string& from, const std::string& to) {
        links.push_back({{"from", from},
                         {"to", to},
                         {"bytes", bytes},
                         {"seconds", bytes / rate(version, from, to)},
                         {"transport", transport}});
      };
      for (const char* from : {"trainer/0", "trainer/1", "trainer/2"}) add(from, "rollout-0/0");
      add("rollout-0/0", "rollout-1/0");
      text += json{{"step", version}, {"policy_version", version}, {"links", links}}.dump() + "\n";
    }
    folder_.Write("run/updates.jsonl",
                  text + "{\"step\": 9, \"li");  // a line that is being written
    folder_.Write("run/config.yaml", config::ToYaml(config::DefaultRunConfig()));
    folder_.Write("run/metrics.jsonl", "{\"training/global_step\":1,\"timing_s/step\":1.0}\n");
  }
  std::vector<Link> Links() {
    auto links = ReadLinks(folder_ / "run/updates.jsonl");
    EXPECT_OK(links.status());
    return links.ok() ? *std::move(links) : std::vector<Link>();
  }

  const TempFolder folder_;
};

TEST_F(LinksTest, AreAddedUpOverUpdates) {
  Write(3, [](int64_t version, const auto&, const auto&) { return 1e9 * version; });
  const std::vector<Link> links = Links();
  ASSERT_EQ(links.size(), 4u);
  EXPECT_EQ(links[0].from, "trainer/0");
  EXPECT_EQ(links[3].from, "rollout-0/0");
  EXPECT_EQ(links[3].to, "rollout-1/0");
  EXPECT_DOUBLE_EQ(links[1].bytes(), 24e6);
  EXPECT_NEAR(links[1].bytes_per_second(), 2e9, 1);  // of the median update
  EXPECT_THAT(FindSlowLinks(links), IsEmpty());
  EXPECT_THAT(*ReadLinks(folder_ / "nowhere"), IsEmpty());
}

TEST_F(LinksTest, OneFarBehindItsSiblingsIsNamed) {
  Write(3, [](int64_t, const std::string& from, const auto&) {
    return from == "trainer/1" ? 1e8 : from == "rollout-0/0" ? 5e8 : 1e9;
  });
  const std::vector<Link> links = Links();
  const std::vector<SlowLink> slow = FindSlowLinks(links);
  // What passes between replicas has no siblings here.
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].link->from, "trainer/1");
  EXPECT_NEAR(slow[0].siblings, 1e9, 1);
  ASSERT_OK_AND_ASSIGN(const Report report, Diagnose(folder_ / "run"));
  EXPECT_THAT(report.advice,
              Contains(Field(&Advice::finding, AllOf(HasSubstr("trainer/1 -> rollout-0/0"),
                                                     HasSubstr("0.1000 GB/s")))));
  EXPECT_THAT(ToText(report), HasSubstr("trainer/1"));
  const json as_json = ToJson(report);
  ASSERT_EQ(as_json["links"].size(), 4u);
  EXPECT_EQ(as_json["links"][1]["updates"].size(), 3u);
  EXPECT_NEAR(as_json["links"][1]["gigabytes_per_second"].get<double>(), 0.1, 1e-9);
  EXPECT_THAT(ToHtml(report), AllOf(HasSubstr("trainer/1"), HasSubstr("class=\"heat\"")));
}

TEST_F(LinksTest, OneBadUpdateOrAFewBytesSayNothing) {
  Write(3, [](int64_t version, const std::string& from, const auto&) {
    return version == 1 && from == "trainer/1" ? 1e7 : 1e9;
  });
  EXPECT_THAT(FindSlowLinks(Links()), IsEmpty());
  Write(
      3,
      [](int64_t, const std::string& from, const auto&) { return from == "trainer/1" ? 1e7 : 1e9; },
      /*bytes=*/1e4);
  EXPECT_THAT(FindSlowLinks(Links()), IsEmpty());
}

TEST_F(LinksTest, AreHeldAgainstTheDoctorsProbe) {
  Write(3, [](int64_t, const auto&, const auto&) { return 2e8; });
  const json line = {{"severity", "ok"},
                     {"what", "all-reduce by gloo"},
                     {"measured",
                      {{"reduces",
                        {{{"bytes", 4e6}, {"bytes_per_second", 5e9}},
                         {{"bytes", 64e6}, {"bytes_per_second", 1e9}}}}}}};
  const std::string doctor = folder_.Write(
      "doctor.jsonl", "{\"severity\":\"ok\",\"what\":\"limits\"}\n" + line.dump() + "\n");
  ASSERT_OK_AND_ASSIGN(Report report, Diagnose(folder_ / "run", doctor));
  EXPECT_DOUBLE_EQ(report.probe_bytes_per_second.value_or(0), 1e9);  // the largest tensor's
  const auto below = Contains(Field(&Advice::finding, HasSubstr("no link between hosts carries")));
  EXPECT_THAT(report.advice, below);
  EXPECT_THAT(ToText(report), HasSubstr("probe of the hosts reached 1.00 GB/s"));
  Write(3, [](int64_t, const auto&, const auto&) { return 9e8; });
  ASSERT_OK_AND_ASSIGN(report, Diagnose(folder_ / "run", doctor));
  EXPECT_THAT(report.advice, Not(below));
  // Within a host the network is not asked.
  Write(
      3, [](int64_t, const auto&, const auto&) { return 2e8; }, 8e6, "shared_memory");
  ASSERT_OK_AND_ASSIGN(report, Diagnose(folder_ / "run", doctor));
  EXPECT_THAT(report.advice, Not(below));
  EXPECT_THAT(
      Diagnose(folder_ / "run", folder_.Write("other.jsonl", "{\"what\":\"x\"}\n")).status(),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("tandem doctor --json")));
}

}  // namespace
}  // namespace tandem::diagnose
