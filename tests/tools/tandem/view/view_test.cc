// The viewer's server over a run's folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/config/load.h"
#include "common/config/to_yaml.h"
#include "tests/support/http_clients.h"
#include "tests/support/http_get.h"
#include "tests/support/program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"
#include "tests/support/tiny_model.h"
#include "tools/tandem/view/inspector.h"
#include "tools/tandem/view/run_reader.h"
#include "tools/tandem/view/view_server.h"

namespace tandem::view {
namespace {

using nlohmann::json;
using ::tandem::testing::HttpAnswer;
using ::tandem::testing::HttpAsk;
using ::tandem::testing::HttpDial;
using ::tandem::testing::HttpGet;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kStories[] = "models/tinystories-656k";

class ViewTest : public ::testing::Test {
 protected:
  void Start(const std::string& model) {
    config::v1::RunConfig config = config::DefaultRunConfig();
    config.mutable_model()->set_path(model);
    config.mutable_trainer()->set_total_steps(7);
    folder_.Write("run/config.yaml", config::ToYaml(config));
    ASSERT_OK_AND_ASSIGN(reader_, RunReader::Open(folder_ / "run"));
    inspector_ = std::make_unique<Inspector>(*reader_, testing::BinaryPath("tandem-inspect"));
    ASSERT_OK_AND_ASSIGN(server_, ViewServer::Start("127.0.0.1:0", *reader_, *inspector_));
  }

  void WriteSample(const std::vector<int>& prompt, const std::vector<int>& response) {
    folder_.Write("run/rollouts/3.jsonl", json{{"group", 4},
                                               {"prompt", "1+"},
                                               {"completion", "23"},
                                               {"rewards", 1.0},
                                               {"prompt_ids", prompt},
                                               {"response_ids", response},
                                               {"logprobs", {-0.5, -0.25, -0.1}},
                                               {"finish_reason", "stop"},
                                               {"policy_versions", {{2, 0, 3}}}}
                                                  .dump() +
                                              "\n");
  }

  HttpAnswer Get(const std::string& path) { return HttpGet(server_->port(), path); }
  json GetJson(const std::string& path) {
    const HttpAnswer answer = Get(path);
    EXPECT_EQ(answer.code, 200) << path << ": " << answer.body;
    return json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  }

  const TempFolder folder_;
  std::unique_ptr<RunReader> reader_;
  std::unique_ptr<Inspector> inspector_;
  std::unique_ptr<ViewServer> server_;
};

TEST_F(ViewTest, ServesThePageAndNothingElse) {
  Start(testing::WriteTinyModel(folder_));
  EXPECT_THAT(Get("/").body, HasSubstr("<title>Tandem</title>"));
  EXPECT_THAT(Get("/view.js").body, HasSubstr("function drawGroups"));
  EXPECT_THAT(Get("/view.css").body, HasSubstr("#groups"));
  for (const char* path : {"/config.yaml", "/../run/config.yaml", "/%2e%2e/run/config.yaml",
                           "/etc/passwd", "/api/nothing"}) {
    const HttpAnswer answer = Get(path);
    EXPECT_TRUE(answer.code == 404 || answer.code == 400) << path << ": " << answer.code;
  }
  EXPECT_EQ(Get("/api/rollouts").code, 400);
  EXPECT_EQ(Get("/api/rollouts?step=../3").code, 400);
  EXPECT_EQ(Get("/api/rollouts?step=9").code, 404);
}

TEST_F(ViewTest, FollowsARunThatGoesOn) {
  Start(testing::WriteTinyModel(folder_));
  EXPECT_EQ(GetJson("/api/run")["last_step"], 0);
  std::ofstream metrics(folder_ / "run/metrics.jsonl", std::ios::binary);
  metrics << R"({"training/global_step":1,"reward":0.5})"
          << "\n"
          << R"({"training/global_)" << std::flush;
  EXPECT_EQ(GetJson("/api/metrics?after=-1")["lines"].size(), 1u);
  metrics << R"(step":2,"reward":0.75})"
          << "\n"
          << std::flush;
  const json later = GetJson("/api/metrics?after=1")["lines"];
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0]["reward"], 0.75);
  EXPECT_EQ(GetJson("/api/run")["last_step"], 2);
  EXPECT_EQ(GetJson("/api/run")["total_steps"], 7);
  // Put back to a checkpoint of step 1.
  metrics.close();
  folder_.Write("run/metrics.jsonl", "{\"training/global_step\":1,\"reward\":0.5}\n");
  EXPECT_EQ(GetJson("/api/run")["last_step"], 1);
}

TEST_F(ViewTest, GivesEachTokenItsText) {
  Start(testing::WriteTinyModel(folder_));
  WriteSample({3, 12}, {4, 5, 0});
  const json run = GetJson("/api/run");
  EXPECT_THAT(run["steps"].get<std::vector<int>>(), ElementsAre(3));
  const json sample = GetJson("/api/rollouts?step=3")["samples"][0];
  EXPECT_THAT(sample["tokens"].get<std::vector<std::string>>(), ElementsAre("2", "3", "<eos>"));
  EXPECT_THAT(sample["special"].get<std::vector<int>>(), ElementsAre(2));
  EXPECT_EQ(sample["rewards"], 1.0);
}

TEST_F(ViewTest, TheModelReadsASampleOnDemand) {
  SKIP_WITHOUT_DATA(kStories);
  Start(testing::TestData(kStories));
  WriteSample({1, 17, 40, 8}, {25, 3, 9});
  const json found = GetJson("/api/inspect?step=3&sample=0");
  EXPECT_EQ(found["entropies"].size(), 6u);
  EXPECT_EQ(found["logprobs"].size(), 6u);
  EXPECT_EQ(found["tokens"].size(), 7u);
  const size_t heads = found["num_heads"];
  const std::string weights = Get("/api/attention?step=3&sample=0&layer=1").body;
  ASSERT_EQ(weights.size(), heads * 7 * 7);
  for (size_t head = 0; head < heads; ++head) {
    for (size_t row = 0; row < 7; ++row) {
      int sum = 0;
      for (size_t column = 0; column < 7; ++column) {
        const int weight = static_cast<uint8_t>(weights[head * 49 + row * 7 + column]);
        if (column > row) EXPECT_EQ(weight, 0);  // nobody reads ahead
        sum += weight;
      }
      EXPECT_NEAR(sum, 255, 4);  // each is rounded to a byte
    }
  }
  EXPECT_EQ(Get("/api/attention?step=3&sample=0&layer=99").code, 404);
  EXPECT_EQ(Get("/api/inspect?step=3&sample=5").code, 404);
}

TEST_F(ViewTest, SaysWhyAModelCannotRead) {
  Start(testing::WriteTinyModel(folder_));  // has no weights
  WriteSample({3, 12}, {4, 5, 0});
  const HttpAnswer answer = Get("/api/inspect?step=3&sample=0");
  EXPECT_EQ(answer.code, 500);
  EXPECT_THAT(answer.body, HasSubstr("safetensors"));
}

TEST_F(ViewTest, RefusesWhatIsNoRun) {
  EXPECT_THAT(RunReader::Open(folder_.path()).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no config.yaml")));
}

TEST_F(ViewTest, AWebPageOfAnotherSiteReadsNothing) {
  Start(testing::WriteTinyModel(folder_));
  WriteSample({3, 12}, {4, 5, 0});
  const auto ask = [&](const std::string& headers, const std::string& method = "GET") {
    return HttpAsk(server_->port(),
                   method + " /api/rollouts?step=3 HTTP/1.1\r\n" + headers + "\r\n\r\n");
  };
  EXPECT_EQ(ask("Host: localhost:8700").code, 200);
  const HttpAnswer rebound = ask("Host: rebound.example");
  EXPECT_EQ(rebound.code, 421);
  EXPECT_THAT(rebound.body, Not(HasSubstr("response_ids")));
  EXPECT_EQ(ask("Host: localhost\r\nOrigin: http://evil.example").code, 403);
  EXPECT_EQ(ask("Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors").code,
            403);
  const HttpAnswer preflight =
      ask("Host: localhost\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: GET",
          "OPTIONS");
  EXPECT_EQ(preflight.code, 403);
  EXPECT_THAT(preflight.head, Not(HasSubstr("Access-Control")));
}

TEST_F(ViewTest, ClientsThatWaitHoldUpNobody) {
  Start(testing::WriteTinyModel(folder_));
  std::vector<host::FileDescriptor> waiting;
  for (int i = 0; i < 200; ++i) {
    waiting.push_back(HttpDial(server_->port(), i % 2 == 0 ? "" : "GET / HTTP/1.1\r\nHost: lo"));
  }
  EXPECT_THAT(Get("/").body, HasSubstr("<title>Tandem</title>"));
}

TEST_F(ViewTest, SaysThatAPortIsTaken) {
  Start(testing::WriteTinyModel(folder_));
  EXPECT_THAT(
      ViewServer::Start("127.0.0.1:" + std::to_string(server_->port()), *reader_, *inspector_)
          .status(),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cannot listen on")));
}

}  // namespace
}  // namespace tandem::view
