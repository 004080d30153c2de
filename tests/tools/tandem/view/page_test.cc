// What people see: the viewer's pages and the page of `tandem diagnose`, drawn by a browser. The
// pictures stay in build/tests/screenshots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/config/load.h"
#include "common/config/to_yaml.h"
#include "common/images/image_digest.h"
#include "common/io/folder_lock.h"
#include "tests/support/chromium.h"
#include "tests/support/picture_data.h"
#include "tests/support/program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"
#include "tests/tools/tandem/view/probed_page.h"
#include "tools/tandem/diagnose/report.h"
#include "tools/tandem/view/open_runs.h"
#include "tools/tandem/view/view_server.h"

namespace tandem {
namespace {

using nlohmann::json;
using ::tandem::testing::FindChromium;
using ::tandem::testing::Pixel;
using ::tandem::testing::PngImage;
using ::tandem::testing::ProbedPage;
using ::tandem::testing::TakeScreenshot;
using ::tandem::testing::TempFolder;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kStories[] = "models/tinystories-656k";
constexpr int kSteps = 40;

struct Box {
  int left, top, right, bottom;
};

// Pixels of the box that are `like`.
template <typename Like>
int Count(const PngImage& image, Box box, const Like& like) {
  int count = 0;
  for (int y = box.top; y < box.bottom; ++y) {
    for (int x = box.left; x < box.right; ++x) count += like(image.at(x, y)) ? 1 : 0;
  }
  return count;
}

bool IsDark(const Pixel& p) { return p.red + p.green + p.blue < 300; }
// The line of a curve, and what shades of it are mixed with white.
bool IsBlue(const Pixel& p) { return p.blue > p.red + 40; }
bool IsGreen(const Pixel& p) { return p.green > p.red + 40 && p.green > p.blue + 20; }
bool IsRed(const Pixel& p) { return p.red > p.green + 40 && p.red > p.blue + 20; }

class PageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (FindChromium().empty()) {
      GTEST_SKIP() << "Chromium is not there; tools/setup --tests installs it";
    }
    SKIP_WITHOUT_DATA(kStories);
    config_.mutable_model()->set_path(testing::TestData(kStories));
    config_.mutable_trainer()->set_total_steps(kSteps);
    folder_.Write("run/config.yaml", config::ToYaml(config_));
    WriteMetrics();
    WriteUpdates();
    WriteSamples("run/rollouts/3.jsonl");
  }

  static PngImage Picture(const std::string& url, const std::string& name) {
    auto image = TakeScreenshot(url, std::string(TANDEM_SCREENSHOTS) + "/" + name);
    EXPECT_OK(image.status());
    return image.ok() ? *std::move(image) : PngImage();
  }

  void WriteMetrics() {
    std::string text;
    for (int step = 1; step <= kSteps; ++step) {
      json line = {{"training/global_step", step},
                   {"critic/rewards/mean", 1 - std::exp(-0.1 * step)},
                   {"actor/entropy", 1 + std::sin(0.4 * step)},
                   {"actor/lr", 3e-4},
                   {"perf/throughput", 12345.6 + 100 * step},
                   {"timing_s/step", 1.0},
                   {"timing_s/gen", 0.5 + 0.01 * step},
                   {"timing_s/train_step", 0.3},
                   {"timing_s/update_weights", 0.06},
                   {"update_weights/pause_s", 1e-5},
                   {"update_weights/sent_bytes", 8e7},
                   {"update_weights/exposed_s/wire", 0.04},
                   {"update_weights/exposed_s/verify", 0.01},
                   {"perf/peak_rss_bytes", 1e9 + 1e7 * step},
                   {"perf/peak_tensor_bytes", 6e8}};
      for (int rank = 0; rank < 4; ++rank) {
        const std::string prefix = "timing_s/rank." + std::to_string(rank) + "/";
        line[prefix + "step"] = 0.3;
        line[prefix + "forward"] = 0.08 + 0.01 * rank;
        line[prefix + "backward"] = 0.12;
        line[prefix + "all_gather_wait"] = 0.03;
        line[prefix + "reduce_scatter_wait"] = 0.02;
      }
      text += line.dump() + "\n";
    }
    folder_.Write("run/metrics.jsonl", text);
  }

  // Four trainer ranks feed a replica of two ranks, which feeds another; one link is slow.
  void WriteUpdates() {
    std::string text;
    for (int step = 1; step <= kSteps; ++step) {
      json links = json::array();
      const auto add = [&](const std::string& from, const std::string& to, double rate) {
        const double bytes = 1e7;
        links.push_back({{"from", from},
                         {"to", to},
                         {"bytes", bytes},
                         {"seconds", bytes / (rate * (1 + 0.2 * std::sin(step)))},
                         {"transport", "socket"}});
      };
      for (int rank = 0; rank < 4; ++rank) {
        for (int to = 0; to < 2; ++to) {
          add("trainer/" + std::to_string(rank), "rollout-0/" + std::to_string(to),
              rank == 2 && to == 1 ? 4e7 : 1.1e9 + 1e8 * rank);
        }
      }
      for (int to = 0; to < 2; ++to) {
        add("rollout-0/" + std::to_string(to), "rollout-1/" + std::to_string(to), 2.4e9);
      }
      text += json{{"step", step}, {"policy_version", step}, {"links", links}}.dump() + "\n";
    }
    folder_.Write("run/updates.jsonl", text);
  }

  void WriteSamples(const std::string& path) {
    std::string text;
    for (int group = 0; group < 6; ++group) {
      for (int sample = 0; sample < 4; ++sample) {
        json line = {{"group", group},
                     {"prompt", "A <b>story</b> about <img src=x onerror=alert(1)> number " +
                                    std::to_string(group)},
                     {"completion", "once upon <b>a</b> time"},
                     {"rewards", (group + sample) % 2},
                     {"prompt_ids", {1, 17, 40, 8 + group}},
                     {"finish_reason", sample == 0 ? "length" : "stop"},
                     {"policy_versions", {{group < 3 ? 2 : 3, 0, 12}}}};
        for (int i = 0; i < 12; ++i) {
          line["response_ids"].push_back(20 + 7 * i + sample);
          line["logprobs"].push_back(-0.5 * i);
        }
        text += line.dump() + "\n";
      }
    }
    folder_.Write(path, text);
  }

  const TempFolder folder_;
  config::v1::RunConfig config_ = config::DefaultRunConfig();
};

class ViewPageTest : public PageTest {
 protected:
  void SetUp() override {
    PageTest::SetUp();
    if (IsSkipped()) return;
    Serve({folder_ / "run"});
  }
  void Serve(const std::vector<std::string>& folders) {
    ASSERT_OK_AND_ASSIGN(auto runs, view::OpenRuns(folders, testing::BinaryPath("tandem-inspect")));
    ASSERT_OK_AND_ASSIGN(server_, view::ViewServer::Start("127.0.0.1:0", std::move(runs)));
  }
  // A second run, of a line.
  void ServeTwoRuns() {
    folder_.Write("other/config.yaml", config::ToYaml(config_));
    folder_.Write("other/metrics.jsonl",
                  R"({"training/global_step":1,"critic/rewards/mean":0.25,"train/loss":2})"
                  "\n");
    Serve({folder_ / "run", folder_ / "other"});
  }
  // What the script says on the page at `hash`.
  std::map<std::string, std::string> Probe(const std::string& hash, const std::string& script,
                                           std::function<void(int)> on_event = nullptr,
                                           int width = 1400) {
    auto page = ProbedPage::Start(server_->port(), script, std::move(on_event));
    EXPECT_OK(page.status());
    return page.ok() ? (*page)->Visit(hash, width) : std::map<std::string, std::string>();
  }
  std::string Url(const std::string& hash) const {
    return "http://127.0.0.1:" + std::to_string(server_->port()) + "/#" + hash;
  }

  std::unique_ptr<view::ViewServer> server_;
};

TEST_F(PageTest, AnEmptyPageIsSeenToBeEmpty) {
  const PngImage image = Picture("about:blank", "blank.png");
  ASSERT_EQ(image.width(), 1400);
  EXPECT_EQ(image.ColoursIn(0, 0, image.width(), image.height()).size(), 1u);
  EXPECT_EQ(Count(image, {0, 0, 1400, 900}, IsBlue), 0);
}

TEST_F(ViewPageTest, SamplesShowPromptsAndColouredTokens) {
  const PngImage image = Picture(Url("samples"), "samples.png");
  ASSERT_EQ(image.width(), 1400);
  EXPECT_GT(image.ColoursIn(0, 0, 1400, 900).size(), 40u);
  // The list on the left: text, and dots for rewards.
  const Box list{0, 200, 440, 600};
  EXPECT_GT(Count(image, list, IsDark), 500);
  EXPECT_GT(Count(image, list, IsGreen), 300);
  EXPECT_GT(Count(image, list, IsRed), 300);
  // The completions: text over shades of red.
  const Box cards{450, 150, 1400, 500};
  EXPECT_GT(Count(image, cards, IsDark), 500);
  EXPECT_GT(Count(image, cards, IsRed), 2000);
}

TEST_F(ViewPageTest, CurvesAreDrawn) {
  const PngImage image = Picture(Url("curves"), "curves.png");
  ASSERT_EQ(image.width(), 1400);
  // Each chart of the overview: the box of its plot is crossed by a line.
  for (int chart = 0; chart < 3; ++chart) {
    const int left = 15 + 345 * chart;
    const Box plot{left + 80, 165, left + 330, 295};
    EXPECT_GT(Count(image, plot, IsBlue), 150) << "chart " << chart;
    // Its labels.
    EXPECT_GT(image.ColoursIn(left, 165, left + 75, 295).size(), 4u) << "chart " << chart;
  }
}

TEST_F(ViewPageTest, OpensWithAnOverviewOfWhatTheRunHas) {
  auto said = Probe("", R"(
    await until(() => $("overview").children.length > 0);
    say("overview", [...$("overview").children].map((chart) => chart.dataset.metric).join(" "));
    const groups = [...document.querySelectorAll("details")];
    say("groups", groups.map((group) => `${group.dataset.group}:${group.open}`).join(" "));
    $("metric-search").value = "grad norm entropy";
    $("metric-search").dispatchEvent(new Event("input"));
    say("found", [...document.querySelectorAll("details[open] .chart")].map((chart) => chart.dataset.metric).join(" "));
  )");
  EXPECT_EQ(said["overview"], "critic/rewards/mean actor/entropy perf/throughput");
  EXPECT_EQ(said["groups"],
            "actor:false critic:false perf:false timing_s:false timing_s/rank.*:false "
            "update_weights:false");
  EXPECT_EQ(said["found"], "actor/entropy");
  EXPECT_EQ(said["error"], "");
}

TEST_F(ViewPageTest, TheHeaderHidesNoToolbar) {
  for (const char* hash : {"#curves", "#samples"}) {
    auto said = Probe(hash, R"(
      await until(() => document.title !== "Tandem");
      const field = $(location.hash.startsWith("#curves") ? "metric-search" : "search");
      const box = field.getBoundingClientRect();
      const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
      say("on top", top === field);
    )");
    EXPECT_EQ(said["on top"], "true") << hash;
    EXPECT_EQ(said["error"], "") << hash;
  }
}

TEST_F(ViewPageTest, PointerAndArrowKeysShowAStepsValues) {
  auto said = Probe("#curves", R"(
    await until(() => $("overview").children.length > 0);
    const plot = $("overview").querySelector("svg"), box = plot.getBoundingClientRect();
    const at = {clientX: box.left, clientY: box.top + 20};
    plot.dispatchEvent(new PointerEvent("pointermove", at));
    say("first", $("tip").innerText);
    plot.dispatchEvent(new PointerEvent("pointerleave"));
    say("left", $("tip").hidden);
    const press = (key) => plot.dispatchEvent(new KeyboardEvent("keydown", {key}));
    press("ArrowLeft");
    say("last", $("tip").innerText);
    press("ArrowLeft");
    say("before", $("tip").innerText);
    press("Enter");
    await until(() => document.querySelectorAll(".card").length > 0);
    say("opened", $("step").textContent);
  )");
  EXPECT_THAT(said["first"], HasSubstr("step 1\n"));
  EXPECT_THAT(said["first"], HasSubstr("0.0952"));
  EXPECT_EQ(said["left"], "true");
  EXPECT_THAT(said["last"], HasSubstr("step 40"));
  EXPECT_THAT(said["before"], HasSubstr("step 39"));
  EXPECT_EQ(said["opened"], "3");  // the nearest step with samples
  EXPECT_EQ(said["error"], "");
}

TEST_F(ViewPageTest, EachRunHasItsColourAndCanBeLeftOut) {
  ServeTwoRuns();
  auto said = Probe("#curves", R"(
    await until(() => $("overview").children.length > 0);
    const chart = document.querySelector("#overview [data-metric='critic/rewards/mean']");
    const colours = () => new Set([...chart.querySelectorAll("path")].map((path) => path.getAttribute("stroke"))).size;
    const metrics = () => [...$("overview").children].map((chart) => chart.dataset.metric).join(" ");
    say("legend", $("runs").innerText.replaceAll(/\s+/g, " "));
    say("colours", colours());
    say("metrics", metrics());
    $("runs").querySelectorAll("input")[1].click();
    await until(() => colours() === 1);
    say("one colour", colours());
    say("one run's metrics", metrics());
  )");
  EXPECT_THAT(said["legend"], HasSubstr("run finished, 40 steps"));
  EXPECT_THAT(said["legend"], HasSubstr("other stopped at step 1 of 40"));
  EXPECT_EQ(said["colours"], "2");
  EXPECT_THAT(said["metrics"], HasSubstr("train/loss"));
  EXPECT_EQ(said["one colour"], "1");
  EXPECT_THAT(said["one run's metrics"], Not(HasSubstr("train/loss")));
  EXPECT_EQ(said["error"], "");
}

TEST_F(ViewPageTest, MarkupInSamplesIsTextAndNothingElse) {
  auto said = Probe("#samples", R"(
    await until(() => document.querySelectorAll(".card").length > 0);
    say("images", document.querySelectorAll("#samples-tab img, #samples-tab b").length);
    say("prompt", document.querySelector(".prompt").innerText);
    $("search").value = "<img";
    $("search").dispatchEvent(new Event("input"));
    await until(() => document.querySelector("mark"));
    say("marked", document.querySelector("mark").innerText);
  )");
  EXPECT_EQ(said["images"], "0");
  EXPECT_THAT(said["prompt"], HasSubstr("<b>story</b> about <img src=x onerror=alert(1)>"));
  EXPECT_EQ(said["marked"], "<img");
  EXPECT_EQ(said["error"], "");
}

TEST_F(ViewPageTest, PicturesStandWhereThePromptHasThem) {
  config_.mutable_model()->set_path(testing::WritePictureModel(folder_));
  folder_.Write("run/config.yaml", config::ToYaml(config_));
  const std::string png = testing::SquaresPng(2, 40);
  const auto digest = [](const std::string& file) {
    return absl::BytesToHexString(images::ImageDigest(file));
  };
  const json there = {{"path", folder_.Write("cat.png", png)}, {"sha256", digest(png)}};
  const json gone = {{"path", folder_ / "gone.png"}, {"sha256", digest("gone")}};
  folder_.Write("run/rollouts/3.jsonl",
                json{{"group", 4},
                     {"prompt", "before<|image_pad|>between<|image_pad|>after"},
                     {"completion", "1"},
                     {"rewards", 1},
                     {"finish_reason", "stop"},
                     {"images", {there, gone}},
                     {"segments",
                      {{{"kind", "prompt"}, {"ids", {3, 16, 16, 4, 16, 5}}},
                       {{"kind", "sampled"}, {"ids", {4, 2}}, {"logprobs", {-1., -1.}}},
                       {{"kind", "observation"}, {"ids", {9, 16, 16, 16, 9}}, {"images", {there}}},
                       {{"kind", "sampled"}, {"ids", {2}}, {"logprobs", {-1.}}}}}}
                        .dump() +
                    "\n");
  Serve({folder_ / "run"});
  auto said = Probe("#samples", R"(
    await until(() => document.querySelector(".prompt .missing"));
    await until(() => [...document.querySelectorAll("#samples-tab img")].every((i) => i.naturalWidth > 0));
    say("prompt", document.querySelector(".prompt").innerText.replaceAll(/\s+/g, " "));
    say("size", document.querySelector(".prompt img").naturalWidth);
    say("pictures", document.querySelectorAll(".tokens img").length);
    say("tokens", document.querySelectorAll(".tokens > *").length);
    say("in list", document.querySelector("#groups .text").innerText);
    say("buttons", document.querySelectorAll(".card button").length);
  )");
  EXPECT_THAT(said["prompt"],
              ::testing::MatchesRegex(
                  "before.*cat.png, 16 x 16.*between.*no picture: .*gone.png.*after.*"));
  EXPECT_EQ(said["size"], "16");
  EXPECT_EQ(said["pictures"], "1");
  EXPECT_EQ(said["tokens"], "6");  // 5 tokens and the picture of three more
  EXPECT_EQ(said["in list"], "before[image]between[image]after");
  EXPECT_EQ(said["buttons"], "0");
  EXPECT_EQ(said["error"], "");
}

TEST_F(ViewPageTest, EvaluationsCanBeRead) {
  WriteSamples("run/evaluations/40.jsonl");
  auto said = Probe("#samples/0/evaluations/40", R"(
    await until(() => document.querySelectorAll(".card").length > 0);
    say("set", $("sample-set").value);
    say("step", $("step").textContent);
    say("card", document.querySelector(".card").innerText);
    const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    press("j");
    say("next prompt", document.querySelector(".prompt").innerText);
  )");
  EXPECT_EQ(said["set"], "evaluations");
  EXPECT_EQ(said["step"], "40");
  EXPECT_THAT(said["card"], HasSubstr("reward"));
  EXPECT_THAT(said["card"], Not(HasSubstr("advantage")));  // an evaluation trains nothing
  EXPECT_THAT(said["next prompt"], HasSubstr("number 1"));
  EXPECT_EQ(said["error"], "");
}

TEST_F(ViewPageTest, FollowsARunUntilItStops) {
  config_.mutable_trainer()->set_total_steps(100);
  folder_.Write("run/config.yaml", config::ToYaml(config_));
  ASSERT_OK_AND_ASSIGN(io::FolderLock held, io::FolderLock::Acquire(folder_ / "run", {}));
  std::optional<io::FolderLock> lock(std::move(held));
  const auto on_event = [&](int number) {
    if (number == 2) return lock.reset();
    std::ofstream(folder_ / "run/metrics.jsonl", std::ios::app)
        << R"({"training/global_step":41,"actor/entropy":7.5})"
        << "\n";
  };
  auto said = Probe("#curves", R"(
    const state = () => document.querySelector(".run .state")?.innerText || "";
    const entropy = () => document.querySelector("[data-metric='actor/entropy'] h3").innerText;
    await until(() => state().includes("step 40"));
    say("begin", state());
    await event(1);
    await until(() => state().includes("step 41"));
    say("later", state());
    say("entropy", entropy());
    await event(2);
    await until(() => state().includes("stopped"));
    say("end", state());
  )",
                    on_event);
  EXPECT_EQ(said["begin"], "running, step 40 of 100");
  EXPECT_EQ(said["later"], "running, step 41 of 100");
  EXPECT_THAT(said["entropy"], HasSubstr("7.5"));
  EXPECT_THAT(said["end"], HasSubstr("stopped at step 41 of 100, "));
  EXPECT_EQ(said["error"], "");
}

TEST_F(ViewPageTest, ANarrowWindowCutsNothingOff) {
  for (const char* hash : {"#curves", "#samples", "#config"}) {
    auto said = Probe(hash, R"(
      await until(() => document.querySelector("pre:not(.probe), .chart, .card"));
    const width = document.documentElement.scrollWidth;
    say(
        "fits", width <= innerWidth ? "yes" : `${width} of $ { innerWidth }`);
    )",
                      nullptr, 500);
    EXPECT_EQ(said["fits"], "yes") << hash;
    EXPECT_EQ(said["error"], "") << hash;
  }
}

TEST_F(ViewPageTest, AttentionIsDrawnAsALowerTriangle) {
  const PngImage image = Picture(Url("attention/0/rollouts/3/5"), "attention.png");
  ASSERT_EQ(image.width(), 1400);
  // The map fills most of the dialog's left half.
  const Box below{320, 450, 550, 700};
  EXPECT_GT(Count(image, below, IsBlue), 3000);
  EXPECT_GT(image.ColoursIn(below.left, below.top, below.right, below.bottom).size(), 8u);
  // Nobody reads ahead: the other corner is plain.
  EXPECT_LT(Count(image, {600, 210, 760, 300}, IsBlue), 50);
  // Rows and columns carry their tokens.
  EXPECT_GT(Count(image, {205, 205, 296, 760}, IsDark), 100);
  EXPECT_GT(Count(image, {300, 105, 860, 200}, IsDark), 100);
}

TEST_F(PageTest, TheDiagnosisShowsBarsAndLinks) {
  ASSERT_OK_AND_ASSIGN(diagnose::Report report, diagnose::Diagnose(folder_ / "run"));
  report.probe_bytes_per_second = 3e9;
  const std::string page = folder_.Write("page.html", diagnose::ToHtml(report));
  const auto shot = TakeScreenshot("file://" + page,
                                   std::string(TANDEM_SCREENSHOTS) + "/diagnose.png", 1100, 1800);
  ASSERT_OK(shot.status());
  const Box all{0, 0, 1100, 1800};
  EXPECT_GT(shot->ColoursIn(0, 0, 1100, 1800).size(), 60u);
  EXPECT_GT(Count(*shot, all, IsBlue), 20000);
  EXPECT_GT(Count(*shot, all, IsGreen), 5000);
  // The slow link's cell, in amber, and nothing else as large in that colour.
  const auto is_amber = [](const Pixel& p) {
    return p.red > 200 && p.green > 130 && p.green < 210 && p.blue < 130;
  };
  EXPECT_GT(Count(*shot, all, is_amber), 800);
}

}  // namespace
}  // namespace tandem
