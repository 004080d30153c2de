// What people see: the viewer's pages and the page of `tandem diagnose`, drawn by a browser. The
// pictures stay in build/tests/screenshots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/config/load.h"
#include "common/config/to_yaml.h"
#include "tests/support/chromium.h"
#include "tests/support/program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"
#include "tools/tandem/diagnose/report.h"
#include "tools/tandem/view/inspector.h"
#include "tools/tandem/view/run_reader.h"
#include "tools/tandem/view/view_server.h"

namespace tandem {
namespace {

using nlohmann::json;
using ::tandem::testing::FindChromium;
using ::tandem::testing::Pixel;
using ::tandem::testing::PngImage;
using ::tandem::testing::TakeScreenshot;
using ::tandem::testing::TempFolder;

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
    WriteRollouts();
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

  void WriteRollouts() {
    std::string text;
    for (int group = 0; group < 6; ++group) {
      for (int sample = 0; sample < 4; ++sample) {
        json line = {{"group", group},
                     {"prompt", "A story about number " + std::to_string(group)},
                     {"completion", "once upon a time"},
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
    folder_.Write("run/rollouts/3.jsonl", text);
  }

  const TempFolder folder_;
  config::v1::RunConfig config_ = config::DefaultRunConfig();
};

class ViewPageTest : public PageTest {
 protected:
  void SetUp() override {
    PageTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_OK_AND_ASSIGN(reader_, view::RunReader::Open(folder_ / "run"));
    inspector_ = std::make_unique<view::Inspector>(*reader_, testing::BinaryPath("tandem-inspect"));
    ASSERT_OK_AND_ASSIGN(server_, view::ViewServer::Start("127.0.0.1:0", *reader_, *inspector_));
  }
  std::string Url(const std::string& hash) const {
    return "http://127.0.0.1:" + std::to_string(server_->port()) + "/#" + hash;
  }

  std::unique_ptr<view::RunReader> reader_;
  std::unique_ptr<view::Inspector> inspector_;
  std::unique_ptr<view::ViewServer> server_;
};

TEST_F(PageTest, AnEmptyPageIsSeenToBeEmpty) {
  const PngImage image = Picture("about:blank", "blank.png");
  ASSERT_EQ(image.width(), 1400);
  EXPECT_EQ(image.ColoursIn(0, 0, image.width(), image.height()).size(), 1u);
  EXPECT_EQ(Count(image, {0, 0, 1400, 900}, IsBlue), 0);
}

TEST_F(ViewPageTest, RolloutsShowPromptsAndColouredTokens) {
  const PngImage image = Picture(Url("rollouts"), "rollouts.png");
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
  // Each chart of the first row: the box of its plot is crossed by a line.
  for (int chart = 0; chart < 4; ++chart) {
    const int left = 15 + 345 * chart;
    const Box plot{left + 80, 110, left + 330, 250};
    EXPECT_GT(Count(image, plot, IsBlue), 150) << "chart " << chart;
    // Its labels.
    EXPECT_GT(image.ColoursIn(left, 110, left + 75, 250).size(), 4u) << "chart " << chart;
  }
}

TEST_F(ViewPageTest, AttentionIsDrawnAsALowerTriangle) {
  const PngImage image = Picture(Url("attention/3/5"), "attention.png");
  ASSERT_EQ(image.width(), 1400);
  // The map fills most of the dialog's left half.
  const Box below{270, 450, 500, 700};
  EXPECT_GT(Count(image, below, IsBlue), 3000);
  EXPECT_GT(image.ColoursIn(below.left, below.top, below.right, below.bottom).size(), 8u);
  // Nobody reads ahead: the other corner is plain.
  EXPECT_LT(Count(image, {600, 190, 760, 300}, IsBlue), 50);
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
