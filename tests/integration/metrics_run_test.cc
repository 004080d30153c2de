// What Prometheus finds at every process of a run: names that its linter accepts, and every metric
// that the dashboards ask for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/child_process.h"
#include "common/version/version.h"
#include "tests/support/addition_data.h"
#include "tests/support/http_get.h"
#include "tests/support/program.h"
#include "tests/support/status_matchers.h"

namespace tandem {
namespace {

using ::tandem::testing::BinaryPath;
using ::tandem::testing::HttpAnswer;
using ::tandem::testing::HttpGet;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;
using ::testing::HasSubstr;

// Ports for the driver, two trainer ranks and a rollout, somewhere away from the ephemeral ones.
int BasePort() { return 9400 + 8 * (static_cast<int>(getpid()) % 1000); }

// Names of the samples of a scrape.
std::set<std::string> SampleNames(const std::string& text) {
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    names.insert(line.substr(0, line.find_first_of("{ ")));
  }
  return names;
}

// Names that the expressions of a dashboard ask for.
std::set<std::string> AskedFor(const nlohmann::json& node) {
  std::set<std::string> names;
  if (node.is_object()) {
    for (const auto& [key, value] : node.items()) {
      if (key == "expr" && value.is_string()) {
        const std::string expression = value;
        static const std::regex name("\\b(tandem|process|grpc_server)_[a-z0-9_]+");
        for (auto it = std::sregex_iterator(expression.begin(), expression.end(), name);
             it != std::sregex_iterator(); ++it) {
          names.insert(it->str());
        }
      } else {
        names.merge(AskedFor(value));
      }
    }
  } else if (node.is_array()) {
    for (const auto& value : node) names.merge(AskedFor(value));
  }
  return names;
}

// Where tools/setup --tests puts it; empty where it is not.
std::string Promtool() {
  const auto folder = [](const char* variable, const char* below) {
    const char* value = std::getenv(variable);
    return value == nullptr ? std::string() : std::string(value) + below;
  };
  for (const std::string& cache : {folder("TANDEM_CACHE", ""), folder("XDG_CACHE_HOME", "/tandem"),
                                   folder("HOME", "/.cache/tandem")}) {
    if (!cache.empty()) {
      return std::filesystem::exists(cache + "/promtool") ? cache + "/promtool" : "";
    }
  }
  return "";
}

class MetricsRunTest : public ::testing::Test {
 protected:
  // Starts a run that goes on until it is told to end, and scrapes every process when two steps are
  // done.
  void SetUp() override {
    std::vector<std::string> argv = TinyRun(folder_, "train");
    argv.insert(argv.begin(), BinaryPath("tandem"));
    argv.insert(argv.end(), {"--metrics", "127.0.0.1:" + std::to_string(BasePort()), "--set",
                             "trainer.total_steps=100000", "--set", "trainer.ranks=2", "--set",
                             "rollout.replicas=1", "--set", "trainer.test_freq=0"});
    rpc::ChildProcessOptions options;
    options.name = "driver";
    options.argv = std::move(argv);
    options.log_path = folder_ / "driver.log";
    ASSERT_OK_AND_ASSIGN(run_, rpc::ChildProcess::Start(options));
    const absl::Time deadline = absl::Now() + absl::Seconds(120);
    static const std::regex two_steps("\ntandem_run_step ([2-9]|[1-9][0-9]+)\n");
    HttpAnswer driver;
    while (!std::regex_search(driver.body, two_steps)) {
      ASSERT_LT(absl::Now(), deadline) << ReadWhole(folder_ / "driver.log");
      absl::SleepFor(absl::Milliseconds(200));
      driver = HttpGet(BasePort(), "/metrics");
    }
    for (int i = 0; i < 4; ++i) scrapes_.push_back(HttpGet(BasePort() + i, "/metrics").body);
  }

  void TearDown() override {
    if (run_ == nullptr) return;
    run_->Signal(SIGINT);
    EXPECT_TRUE(run_->Wait(absl::Seconds(60)));
  }

  TempFolder folder_;
  std::unique_ptr<rpc::ChildProcess> run_;
  std::vector<std::string> scrapes_;  // driver, trainer ranks 0 and 1, rollout
};

TEST_F(MetricsRunTest, EveryProcessTellsWhatItDoes) {
  EXPECT_THAT(scrapes_[0], HasSubstr("tandem_run_step_value{name=\"actor/grad_norm\"}"));
  EXPECT_THAT(scrapes_[0], HasSubstr("tandem_run_steps_planned 100000\n"));
  EXPECT_THAT(scrapes_[1], HasSubstr("tandem_train_step_seconds_count{code=\"ok\"}"));
  EXPECT_THAT(scrapes_[1], HasSubstr("tandem_weight_update_phase_seconds_total{phase=\"commit\"}"));
  EXPECT_THAT(scrapes_[1], HasSubstr("tandem_weight_update_replicas_total{outcome=\"committed\"}"));
  EXPECT_THAT(scrapes_[1], HasSubstr("grpc_method=\"tandem.trainer.v1.TrainerService/TrainStep\""));
  EXPECT_THAT(scrapes_[1], HasSubstr("tandem_lease_take_overs_total 0\n"));
  EXPECT_THAT(scrapes_[1], HasSubstr("tandem_lease_refused_calls_total 0\n"));
  EXPECT_THAT(scrapes_[3], HasSubstr("tandem_rollout_take_overs_total 0\n"));
  EXPECT_THAT(scrapes_[3], HasSubstr("tandem_refused_trainers_total 0\n"));
  EXPECT_THAT(scrapes_[2], HasSubstr(absl::StrCat("role=\"trainer\",version=\"",
                                                  version::BuildVersion(), "\",rank=\"1\"")));
  EXPECT_THAT(scrapes_[3], HasSubstr("tandem_samples_finished_total{finished_reason="));
  EXPECT_THAT(scrapes_[3], HasSubstr("tandem_requests_total{code=\"ok\"}"));
  const std::regex sampled("\ntandem_generation_tokens_total [1-9]");
  EXPECT_TRUE(std::regex_search(scrapes_[3], sampled)) << scrapes_[3];
}

TEST_F(MetricsRunTest, TheLinterAcceptsEveryScrape) {
  const std::string promtool = Promtool();
  if (promtool.empty()) GTEST_SKIP() << "promtool is not there; tools/setup --tests fetches it";
  for (size_t i = 0; i < scrapes_.size(); ++i) {
    const std::string scrape = folder_ / "scrape";
    std::ofstream(scrape) << scrapes_[i];
    const std::string said = folder_ / "said";
    const int status =
        std::system((promtool + " check metrics <'" + scrape + "' >'" + said + "' 2>&1").c_str());
    EXPECT_EQ(status, 0) << "process " << i << ": " << ReadWhole(said);
  }
}

TEST_F(MetricsRunTest, DashboardsAskForNothingThatIsNotThere) {
  std::set<std::string> there;
  for (const std::string& scrape : scrapes_) there.merge(SampleNames(scrape));
  int num_dashboards = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::string(TANDEM_SOURCE) + "/deploy/monitoring/grafana/dashboards")) {
    if (entry.path().extension() != ".json") continue;
    ++num_dashboards;
    const std::set<std::string> asked =
        AskedFor(nlohmann::json::parse(ReadWhole(entry.path().string())));
    EXPECT_GT(asked.size(), 10) << entry.path();
    for (const std::string& name : asked) {
      EXPECT_TRUE(there.contains(name)) << entry.path() << " asks for " << name;
    }
  }
  EXPECT_GT(num_dashboards, 0);
}

}  // namespace
}  // namespace tandem
