// The viewer's server over a run's folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/config/load.h"
#include "common/config/to_yaml.h"
#include "common/images/image_digest.h"
#include "common/io/folder_lock.h"
#include "tests/support/http_clients.h"
#include "tests/support/http_get.h"
#include "tests/support/picture_data.h"
#include "tests/support/program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"
#include "tests/support/tiny_model.h"
#include "tests/support/vision_chat_model.h"
#include "tools/tandem/view/open_runs.h"
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
  void WriteConfig(const std::string& run, int64_t total_steps = 7) {
    config_.mutable_trainer()->set_total_steps(total_steps);
    folder_.Write(run + "/config.yaml", config::ToYaml(config_));
  }

  std::vector<ViewedRun> Open(const std::vector<std::string>& paths) {
    auto runs = OpenRuns(paths, testing::BinaryPath("tandem-inspect"));
    EXPECT_OK(runs.status());
    return runs.ok() ? *std::move(runs) : std::vector<ViewedRun>();
  }

  void Start(const std::string& model) {
    config_.mutable_model()->set_path(model);
    WriteConfig("run");
    ASSERT_OK_AND_ASSIGN(server_, ViewServer::Start("127.0.0.1:0", Open({folder_ / "run"})));
  }

  static std::string NamesOf(const std::vector<ViewedRun>& runs) {
    std::string names;
    for (const ViewedRun& run : runs) names += run.name + "\n";
    return names;
  }

  void WriteSample(const std::vector<int>& prompt, const std::vector<int>& response,
                   const std::string& set = "rollouts") {
    folder_.Write("run/" + set + "/3.jsonl", json{{"group", 4},
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
  config::v1::RunConfig config_ = config::DefaultRunConfig();
  std::unique_ptr<ViewServer> server_;
};

TEST_F(ViewTest, ServesThePageAndNothingElse) {
  Start(testing::WriteTinyModel(folder_));
  EXPECT_THAT(Get("/").body, HasSubstr("<title>Tandem</title>"));
  EXPECT_THAT(Get("/view.js").body, HasSubstr("function openLinked"));
  for (const char* script : {"/dom.js", "/runs.js", "/charts.js", "/curves.js", "/colours.js",
                             "/samples.js", "/attention.js", "/pictures.js"}) {
    const HttpAnswer answer = Get(script);
    EXPECT_EQ(answer.code, 200) << script;
    EXPECT_THAT(answer.head, HasSubstr("text/javascript")) << script;
    EXPECT_THAT(answer.body, Not(HasSubstr("innerHTML"))) << script;
  }
  EXPECT_THAT(Get("/").head, HasSubstr("Content-Security-Policy: default-src 'self'"));
  EXPECT_THAT(Get("/view.css").body, HasSubstr("#groups"));
  for (const char* path : {"/config.yaml", "/../run/config.yaml", "/%2e%2e/run/config.yaml",
                           "/etc/passwd", "/api/nothing"}) {
    const HttpAnswer answer = Get(path);
    EXPECT_TRUE(answer.code == 404 || answer.code == 400) << path << ": " << answer.code;
  }
  EXPECT_EQ(Get("/api/samples").code, 400);
  EXPECT_EQ(Get("/api/samples?run=0&set=rollouts&step=../3&offset=0").code, 400);
  EXPECT_EQ(Get("/api/samples?run=0&set=../logs&step=3&offset=0").code, 400);
  EXPECT_EQ(Get("/api/samples?run=0&set=rollouts&step=3&offset=-1").code, 400);
  EXPECT_EQ(Get("/api/samples?run=0&set=rollouts&step=9&offset=0").code, 404);
  EXPECT_EQ(Get("/api/samples?run=1&set=rollouts&step=3&offset=0").code, 404);
}

TEST_F(ViewTest, ShowsTheTurnsOfAnEpisodeAsOneSequence) {
  Start(testing::WriteTinyModel(folder_));
  const json sampled = {{"kind", "sampled"},         {"ids", {4, 0}},           {"mask", {1, 1}},
                        {"logprobs", {-1., -2.}},    {"versions", {{7, 0, 2}}}, {"reward", 0.5},
                        {"token_rewards", {0., 0.5}}};
  json last = sampled;
  last["versions"] = {{8, 0, 2}};
  folder_.Write("run/rollouts/3.jsonl",
                json{{"group", 4},
                     {"rewards", 1.0},
                     {"segments",
                      {{{"kind", "prompt"}, {"ids", {3, 13}}, {"mask", {0, 0}}},
                       sampled,
                       {{"kind", "observation"}, {"ids", {9}}, {"mask", {0}}},
                       last}}}
                        .dump() +
                    "\n");

  const json sample = GetJson("/api/samples?run=0&set=rollouts&step=3&offset=0")["samples"][0];

  EXPECT_EQ(sample["prompt_ids"], json({3, 13}));
  EXPECT_EQ(sample["response_ids"], json({4, 0, 9, 4, 0}));
  EXPECT_EQ(sample["logprobs"], json({-1., -2., nullptr, -1., -2.}));
  EXPECT_EQ(sample["token_rewards"], json({0., 0.5, 0, 0., 0.5}));
  EXPECT_EQ(sample["policy_versions"], (json{{7, 0, 2}, {8, 3, 5}}));
  EXPECT_EQ(sample["observed"], (json::array({json::array({2, 3})})));
  EXPECT_EQ(sample["tokens"].size(), 5u);
}

TEST_F(ViewTest, FollowsARunThatGoesOn) {
  Start(testing::WriteTinyModel(folder_));
  const auto status = [&] { return GetJson("/api/runs")["runs"][0]; };
  EXPECT_EQ(status()["name"], "run");
  EXPECT_EQ(status()["last_step"], 0);
  std::ofstream metrics(folder_ / "run/metrics.jsonl", std::ios::binary);
  metrics << R"({"training/global_step":1,"reward":0.5})"
          << "\n"
          << R"({"training/global_)" << std::flush;
  const json first = GetJson("/api/metrics?run=0&generation=-1&from=0");
  EXPECT_EQ(first["lines"].size(), 1u);
  metrics << R"(step":2,"reward":0.75})"
          << "\n"
          << std::flush;
  const std::string same = "/api/metrics?run=0&generation=" + first["generation"].dump();
  const json later = GetJson(same + "&from=1");
  EXPECT_EQ(later["from"], 1);
  EXPECT_EQ(later["total"], 2);
  ASSERT_EQ(later["lines"].size(), 1u);
  EXPECT_EQ(later["lines"][0]["reward"], 0.75);
  EXPECT_EQ(status()["last_step"], 2);
  EXPECT_EQ(status()["num_lines"], 2);
  EXPECT_EQ(status()["total_steps"], 7);
  EXPECT_EQ(status()["generation"], first["generation"]);
  // Put back to a checkpoint of step 1, by a run that has another length.
  metrics.close();
  folder_.Write("run/metrics.jsonl", "{\"training/global_step\":1,\"reward\":0.5}\n");
  WriteConfig("run", 1234);
  EXPECT_EQ(status()["last_step"], 1);
  EXPECT_EQ(status()["total_steps"], 1234);
  const json again = GetJson(same + "&from=2");
  EXPECT_NE(again["generation"], first["generation"]);
  EXPECT_EQ(again["from"], 0);
  EXPECT_EQ(again["lines"].size(), 1u);
}

TEST_F(ViewTest, ARepliesLinesAreBounded) {
  Start(testing::WriteTinyModel(folder_));
  std::string text;
  for (int step = 1; step <= 1200; ++step) {
    text += "{\"training/global_step\":" + std::to_string(step) + "}\n";
  }
  folder_.Write("run/metrics.jsonl", text);
  const json first = GetJson("/api/metrics?run=0&generation=-1&from=0");
  EXPECT_EQ(first["total"], 1200);
  EXPECT_EQ(first["lines"].size(), 500u);
  const json last =
      GetJson("/api/metrics?run=0&generation=" + first["generation"].dump() + "&from=1000");
  EXPECT_EQ(last["lines"].size(), 200u);
  EXPECT_EQ(last["lines"][199]["training/global_step"], 1200);
}

TEST_F(ViewTest, SaysWhetherARunGoesOn) {
  Start(testing::WriteTinyModel(folder_));
  const auto state = [&] { return GetJson("/api/runs")["runs"][0]["state"]; };
  folder_.Write("run/metrics.jsonl", "{\"training/global_step\":3}\n");
  EXPECT_EQ(state(), "stopped");
  {
    ASSERT_OK_AND_ASSIGN(const auto lock, io::FolderLock::Acquire(folder_ / "run", {}));
    EXPECT_EQ(state(), "running");
  }
  EXPECT_EQ(state(), "stopped");
  std::ofstream(folder_ / "run/metrics.jsonl", std::ios::app) << "{\"training/global_step\":7}\n";
  EXPECT_EQ(state(), "finished");
}

TEST_F(ViewTest, ServesSeveralRuns) {
  config_.mutable_model()->set_path(testing::WriteTinyModel(folder_));
  for (const char* run : {"runs/a", "runs/b", "else/b"}) WriteConfig(run);
  folder_.Write("runs/b/metrics.jsonl", "{\"training/global_step\":5}\n");
  folder_.Write("else/b/metrics.jsonl", "no JSON\n");
  // A folder of runs, one of them again, and another of the same name.
  auto runs = Open({folder_ / "runs", folder_ / "runs/a/", folder_ / "else/b"});
  EXPECT_EQ(NamesOf(runs), "a\n" + (folder_ / "runs/b") + "\n" + (folder_ / "else/b") + "\n");
  ASSERT_OK_AND_ASSIGN(server_, ViewServer::Start("127.0.0.1:0", std::move(runs)));
  const json statuses = GetJson("/api/runs")["runs"];
  ASSERT_EQ(statuses.size(), 3u);
  EXPECT_EQ(statuses[1]["last_step"], 5);
  // One that cannot be read leaves the others alone.
  EXPECT_THAT(statuses[2]["error"], HasSubstr("metrics.jsonl"));
  EXPECT_EQ(GetJson("/api/metrics?run=1&generation=-1&from=0")["lines"].size(), 1u);
  EXPECT_EQ(GetJson("/api/metrics?run=0&generation=-1&from=0")["lines"].size(), 0u);
}

TEST_F(ViewTest, SendsAStepsSamplesInPieces) {
  Start(testing::WriteTinyModel(folder_));
  const std::string line =
      json{{"response_ids", {4}}, {"completion", std::string(1 << 20, 'x')}}.dump() + "\n";
  std::string text;
  for (int i = 0; i < 9; ++i) text += line;
  folder_.Write("run/rollouts/3.jsonl", text);
  std::vector<size_t> counts;
  for (json next = 0; !next.is_null();) {
    const json reply = GetJson("/api/samples?run=0&set=rollouts&step=3&offset=" + next.dump());
    counts.push_back(reply["samples"].size());
    next = reply["next"];
    ASSERT_LT(counts.size(), 9u);
  }
  EXPECT_THAT(counts, ElementsAre(4, 4, 1));
  EXPECT_EQ(Get("/api/samples?run=0&set=rollouts&step=3&offset=5").code, 400);  // within a line
}

TEST_F(ViewTest, ALineWithoutEndIsAnErrorAndTheRunsPagesGoOn) {
  Start(testing::WriteTinyModel(folder_));
  folder_.Write("run/metrics.jsonl", "{\"training/global_step\":1}\n");
  std::filesystem::resize_file(folder_ / "run/metrics.jsonl", uint64_t{3} << 30);  // sparse
  folder_.Write("run/rollouts/3.jsonl", "");
  std::filesystem::resize_file(folder_ / "run/rollouts/3.jsonl", uint64_t{3} << 30);

  EXPECT_THAT(GetJson("/api/runs")["runs"][0]["error"], HasSubstr("expected a line of at most"));
  EXPECT_NE(Get("/api/samples?run=0&set=rollouts&step=3&offset=0").code, 200);
  EXPECT_EQ(GetJson("/api/steps?run=0&set=rollouts&after=-1")["steps"].size(), 1u);
}

TEST_F(ViewTest, GivesEachTokenItsText) {
  Start(testing::WriteTinyModel(folder_));
  WriteSample({3, 12}, {4, 5, 0});
  WriteSample({3, 12}, {5, 0, 0}, "evaluations");
  const json steps = GetJson("/api/steps?run=0&set=rollouts&after=-1");
  EXPECT_THAT(steps["steps"].get<std::vector<int>>(), ElementsAre(3));
  EXPECT_EQ(GetJson("/api/steps?run=0&set=rollouts&after=3")["steps"].size(), 0u);
  const json sample = GetJson("/api/samples?run=0&set=rollouts&step=3&offset=0")["samples"][0];
  EXPECT_THAT(sample["tokens"].get<std::vector<std::string>>(), ElementsAre("2", "3", "<eos>"));
  EXPECT_THAT(sample["special"].get<std::vector<int>>(), ElementsAre(2));
  EXPECT_EQ(sample["rewards"], 1.0);
  const json judged = GetJson("/api/samples?run=0&set=evaluations&step=3&offset=0")["samples"][0];
  EXPECT_THAT(judged["tokens"].get<std::vector<std::string>>(), ElementsAre("3", "<eos>", "<eos>"));
}

TEST_F(ViewTest, TheModelReadsASampleOnDemand) {
  SKIP_WITHOUT_DATA(kStories);
  Start(testing::TestData(kStories));
  WriteSample({1, 17, 40, 8}, {25, 3, 9});
  const json found = GetJson("/api/inspect?run=0&set=rollouts&step=3&sample=0");
  EXPECT_EQ(found["entropies"].size(), 6u);
  EXPECT_EQ(found["logprobs"].size(), 6u);
  EXPECT_EQ(found["tokens"].size(), 7u);
  const size_t heads = found["num_heads"];
  const std::string weights = Get("/api/attention?run=0&set=rollouts&step=3&sample=0&layer=1").body;
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
  EXPECT_EQ(Get("/api/attention?run=0&set=rollouts&step=3&sample=0&layer=99").code, 404);
  EXPECT_EQ(Get("/api/inspect?run=0&set=rollouts&step=3&sample=5").code, 404);
}

TEST_F(ViewTest, SaysWhyAModelCannotRead) {
  Start(testing::WriteTinyModel(folder_));  // has no weights
  WriteSample({3, 12}, {4, 5, 0});
  const HttpAnswer answer = Get("/api/inspect?run=0&set=rollouts&step=3&sample=0");
  EXPECT_EQ(answer.code, 500);
  EXPECT_THAT(answer.body, HasSubstr("safetensors"));
}

class ViewImagesTest : public ViewTest {
 protected:
  // The id that stands for an image in the model of picture_data.h.
  static constexpr int kImage = 16;

  static std::string HexDigest(const std::string& file) {
    return absl::BytesToHexString(images::ImageDigest(file));
  }
  json Entry(const std::string& path, const std::string& file) const {
    return {{"path", path}, {"sha256", HexDigest(file)}};
  }
  // A sample of one turn with these images.
  void WriteRow(const json& images, const std::string& file = "run/rollouts/3.jsonl") {
    folder_.Write(file, json{{"group", 4},
                             {"prompt", "1<|image_pad|>+"},
                             {"rewards", 1.0},
                             {"prompt_ids", {4, kImage, kImage, 5}},
                             {"response_ids", {4, 2}},
                             {"images", images}}
                                .dump() +
                            "\n");
  }
  HttpAnswer GetImage(const std::string& digest) {
    return Get("/api/image?run=0&set=rollouts&step=3&sha256=" + digest);
  }
  json FirstSample() {
    return GetJson("/api/samples?run=0&set=rollouts&step=3&offset=0")["samples"][0];
  }

  const std::string picture_ = testing::SquaresPng(3, 70);
};

TEST_F(ViewImagesTest, ServesThePicturesThatSamplesName) {
  Start(testing::WritePictureModel(folder_));
  const std::string path = folder_.Write("data/cat.txt", picture_);  // names say nothing
  WriteRow(json::array({Entry(path, picture_)}));
  const json reply = GetJson("/api/samples?run=0&set=rollouts&step=3&offset=0");
  EXPECT_EQ(reply["image_placeholder"], "<|image_pad|>");
  EXPECT_EQ(reply["samples"][0]["images"], (json::array({{{"sha256", HexDigest(picture_)},
                                                          {"name", path},
                                                          {"part", "prompt"},
                                                          {"begin", 1},
                                                          {"end", 3}}})));
  const HttpAnswer answer = GetImage(HexDigest(picture_));
  EXPECT_EQ(answer.code, 200);
  EXPECT_EQ(answer.body, picture_);
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: image/png"));
  EXPECT_THAT(answer.head, HasSubstr("nosniff"));
  EXPECT_THAT(answer.head, HasSubstr("img-src 'self' data:;"));
}

// Of two images, the first in two lines with another token between them.
TEST_F(ViewImagesTest, LinesOfPlaceholdersAreOnePicture) {
  const std::string model = testing::WritePictureModel(folder_);
  testing::WriteMistral3PictureModel(folder_);
  Start(model);
  folder_.Write("run/rollouts/3.jsonl",
                json{{"group", 4},
                     {"rewards", 1.0},
                     {"prompt_ids", {4, kImage, kImage, 17, kImage, kImage, 19, kImage, 19, 5}},
                     {"response_ids", {4, 2}},
                     {"images", {Entry("a.png", picture_), Entry("b.png", "another")}}}
                        .dump() +
                    "\n");
  const json images = FirstSample()["images"];
  ASSERT_EQ(images.size(), 2u);
  EXPECT_EQ(images[0]["begin"], 1);
  EXPECT_EQ(images[0]["end"], 6);
  EXPECT_EQ(images[1]["begin"], 7);
  EXPECT_EQ(images[1]["end"], 8);
}

// LLaVA's images follow one another without a token between them.
TEST_F(ViewImagesTest, AdjacentImagesOfAsManyPlaceholdersAreOnePictureEach) {
  const std::string model = testing::WriteVisionChatModel(folder_, "llava");
  std::filesystem::remove(model + "/tokenizer.json");  // the count needs none
  Start(model);
  std::vector<int> ids = {3};
  ids.insert(ids.end(), 2 * 16, 36);
  ids.push_back(4);
  const json images = {Entry("a.png", picture_), Entry("b.png", "another"), Entry("c.png", "c")};
  folder_.Write("run/rollouts/3.jsonl",
                json{{"group", 4},
                     {"rewards", 1.0},
                     {"segments",
                      {{{"kind", "prompt"}, {"ids", ids}},
                       {{"kind", "sampled"}, {"ids", {5}}, {"logprobs", {-0.5}}},
                       {{"kind", "observation"}, {"ids", ids}}}},
                     {"images", images}}
                        .dump() +
                    "\n");
  const json shown = FirstSample()["images"];
  ASSERT_EQ(shown.size(), 3u);
  const auto place = [&shown](int i) {
    return json{shown[i]["part"], shown[i]["begin"], shown[i]["end"]};
  };
  EXPECT_EQ(place(0), (json{"prompt", 1, 17}));
  EXPECT_EQ(place(1), (json{"prompt", 17, 33}));
  EXPECT_EQ(place(2), (json{"response", 2, 18}));
}

TEST_F(ViewImagesTest, ShowsThePicturesOfObservations) {
  Start(testing::WritePictureModel(folder_));
  const std::string seen = testing::SquaresPng(1, 9);
  folder_.Write(
      "run/rollouts/3.jsonl",
      json{{"group", 4},
           {"rewards", 1.0},
           {"images", {Entry("first.png", picture_)}},
           {"segments",
            {{{"kind", "prompt"}, {"ids", {kImage, kImage, 5}}},
             {{"kind", "sampled"}, {"ids", {4, 2}}},
             {{"kind", "observation"},
              {"ids", {9, kImage, kImage, kImage, 9}},
              {"images", {Entry("data:image/png;base64," + absl::Base64Escape(seen), seen)}}},
             {{"kind", "sampled"}, {"ids", {2}}}}}}
              .dump() +
          "\n");
  const json images = FirstSample()["images"];
  ASSERT_EQ(images.size(), 2u);
  EXPECT_EQ(images[0]["part"], "prompt");
  EXPECT_EQ(images[1]["part"], "response");
  EXPECT_EQ(images[1]["begin"], 3);
  EXPECT_EQ(images[1]["end"], 6);
  EXPECT_EQ(images[1]["name"], "data URL");  // not its megabytes
  EXPECT_EQ(GetImage(HexDigest(seen)).body, seen);
}

TEST_F(ViewImagesTest, AnOlderLineOfTheGroupNamesTheFile) {
  Start(testing::WritePictureModel(folder_));
  const std::string data = "data:image/png;base64," + absl::Base64Escape(picture_);
  folder_.Write("run/rollouts/3.jsonl",
                json{{"group", 4}, {"images", {Entry(data, picture_)}}}.dump() + "\n" +
                    json{{"group", 4}, {"images", {{{"sha256", HexDigest(picture_)}}}}}.dump() +
                    "\n");
  const json samples = GetJson("/api/samples?run=0&set=rollouts&step=3&offset=0")["samples"];
  EXPECT_EQ(samples[0]["images"][0]["name"], "data URL");
  EXPECT_EQ(samples[1]["images"][0]["name"], nullptr);
  EXPECT_EQ(GetImage(HexDigest(picture_)).body, picture_);
}

TEST_F(ViewImagesTest, ServesNoOtherFile) {
  Start(testing::WritePictureModel(folder_));
  const std::string drawing = "<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>";
  const std::string secret = "secret";
  const std::string other = testing::SquaresPng(2, 1);
  WriteRow(json::array({Entry(folder_.Write("drawing.png", drawing), drawing),
                        Entry(folder_.Write("secret.png", secret), secret),
                        Entry(folder_.Write("changed.png", other), picture_)}));
  folder_.Write("run/images/" + HexDigest(other), other);  // there, but no sample's
  for (const std::string& no_image : {drawing, secret}) {
    const HttpAnswer answer = GetImage(HexDigest(no_image));
    EXPECT_EQ(answer.code, 400);
    EXPECT_THAT(answer.body, HasSubstr("expected a PNG, JPEG or WebP image"));
    EXPECT_THAT(answer.head, HasSubstr("text/plain"));
  }
  const HttpAnswer changed = GetImage(HexDigest(picture_));
  EXPECT_EQ(changed.code, 404);
  EXPECT_THAT(changed.body, HasSubstr("changed.png: the file changed"));
  EXPECT_EQ(GetImage(HexDigest(other)).code, 404);
  for (const char* none : {"", "..%2F..%2Fsecret.png", "zz", "secret.png"}) {
    EXPECT_EQ(GetImage(none).code, 400) << none;
  }
  EXPECT_EQ(Get("/api/image?run=0&set=rollouts&step=9&sha256=" + HexDigest(picture_)).code, 404);
  EXPECT_EQ(Get("/api/image?run=7&set=rollouts&step=3&sha256=" + HexDigest(picture_)).code, 404);
}

TEST_F(ViewImagesTest, AFileThatIsGoneIsNamed) {
  Start(testing::WritePictureModel(folder_));
  WriteRow(json::array({Entry(folder_ / "gone.png", picture_)}));
  const HttpAnswer answer = GetImage(HexDigest(picture_));
  EXPECT_EQ(answer.code, 404);
  EXPECT_THAT(answer.body, HasSubstr(folder_ / "gone.png"));
  // The run's own copy is there wherever its folder was moved to.
  folder_.Write("run/images/" + HexDigest(picture_), picture_);
  EXPECT_EQ(GetImage(HexDigest(picture_)).body, picture_);
}

TEST_F(ViewImagesTest, TheModelsViewOfAPictureIsNotComputed) {
  Start(testing::WritePictureModel(folder_));
  WriteRow(json::array({Entry(folder_.Write("cat.png", picture_), picture_)}));
  const HttpAnswer answer = Get("/api/inspect?run=0&set=rollouts&step=3&sample=0");
  EXPECT_EQ(answer.code, 501);
  EXPECT_THAT(answer.body, HasSubstr("with images is not computed"));
}

TEST_F(ViewTest, RefusesWhatIsNoRun) {
  EXPECT_THAT(OpenRuns({folder_.path()}, "tandem-inspect").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no config.yaml")));
}

TEST_F(ViewTest, AWebPageOfAnotherSiteReadsNothing) {
  Start(testing::WriteTinyModel(folder_));
  WriteSample({3, 12}, {4, 5, 0});
  const auto ask = [&](const std::string& headers, const std::string& method = "GET") {
    return HttpAsk(server_->port(),
                   method + " /api/samples?run=0&set=rollouts&step=3&offset=0 HTTP/1.1\r\n" +
                       headers + "\r\n\r\n");
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
  EXPECT_THAT(ViewServer::Start("127.0.0.1:" + std::to_string(server_->port()), {}).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cannot listen on")));
}

}  // namespace
}  // namespace tandem::view
