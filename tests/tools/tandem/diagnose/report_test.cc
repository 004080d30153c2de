#include "tools/tandem/diagnose/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/config/load.h"
#include "common/config/to_yaml.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::diagnose {
namespace {

using nlohmann::json;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

// A run of two ranks whose steps take a second.
class ReportTest : public ::testing::Test {
 protected:
  static json Healthy(int64_t step) {
    json line = {{"training/global_step", step},
                 {"timing_s/step", 1.0},
                 {"timing_s/gen", 0.3},
                 {"timing_s/reward", 0.01},
                 {"timing_s/train_step", 0.6},
                 {"timing_s/update_weights", 0.05},
                 {"update_weights/pause_s", 1e-5},
                 {"update_weights/sent_bytes", 4e7},
                 {"update_weights/exposed_s/wire", 0.03},
                 {"update_weights/exposed_s/unpack", 0.01},
                 {"update_weights/exposed_s/verify", 0.002},
                 {"perf/peak_rss_bytes", 1e9},
                 {"perf/peak_tensor_bytes", 5e8}};
    for (int rank = 0; rank < 2; ++rank) {
      const std::string prefix = "timing_s/rank." + std::to_string(rank) + "/";
      line[prefix + "step"] = 0.6;
      line[prefix + "forward"] = 0.18;
      line[prefix + "backward"] = 0.3;
      line[prefix + "head"] = 0.05;
      line[prefix + "optimizer"] = 0.02;
      line[prefix + "all_gather_wait"] = 0.01;
      line[prefix + "reduce_scatter_wait"] = 0.02;
      line[prefix + "norm_wait"] = 0.005;
      line[prefix + "other"] = 0.015;
    }
    return line;
  }

  void Write(int64_t num_steps, const std::function<void(int64_t, json&)>& change = nullptr) {
    folder_.Write("run/config.yaml", config::ToYaml(config_));
    std::string text = "{\"training/global_step\":0,\"timing_s/step\":99}\n";
    for (int64_t step = 1; step <= num_steps; ++step) {
      json line = Healthy(step);
      if (change) change(step, line);
      text += line.dump() + "\n";
    }
    folder_.Write("run/metrics.jsonl", text + "{\"training/glo");  // a line that is being written
  }

  Report Diagnosed() {
    auto report = Diagnose(folder_ / "run");
    EXPECT_OK(report.status());
    return report.ok() ? *std::move(report) : Report{};
  }

  const TempFolder folder_;
  config::v1::RunConfig config_ = config::DefaultRunConfig();
};

TEST_F(ReportTest, AddsUpWhatTheLinesSay) {
  Write(4, [](int64_t step, json& line) { line["timing_s/update_weights"] = 0.01 * step; });
  const Report report = Diagnosed();
  EXPECT_EQ(report.num_steps, 4);
  EXPECT_DOUBLE_EQ(report.step.mean, 1.0);
  EXPECT_DOUBLE_EQ(report.update.mean, 0.025);
  EXPECT_DOUBLE_EQ(report.update.max, 0.04);
  EXPECT_DOUBLE_EQ(report.driver_phases.at("train_step").mean, 0.6);
  ASSERT_EQ(report.ranks.size(), 2u);
  EXPECT_NEAR(report.ranks[1].compute, 0.55, 1e-12);
  EXPECT_NEAR(report.ranks[1].exposed(), 0.03, 1e-12);
  // 40 MB in the 0.04 s in which bytes move.
  ASSERT_TRUE(report.update_bytes_per_second.has_value());
  EXPECT_NEAR(*report.update_bytes_per_second, 1e9, 1);
  EXPECT_EQ(report.memory.size(), 4u);
  EXPECT_TRUE(report.advice.empty()) << report.advice[0].finding;
  EXPECT_THAT(ToText(report), HasSubstr("Nothing stands out."));
}

TEST_F(ReportTest, CountsWhatHappensEveryNStepsByHowOftenItHappens) {
  Write(20, [](int64_t step, json& line) {
    if (step % 10 == 0) line["timing_s/testing"] = 5.0;
    if (step == 20) line["timing_s/save_checkpoint"] = 2.0;
  });

  const Report report = Diagnosed();

  const Distribution& testing = report.driver_phases.at("testing");
  EXPECT_EQ(testing.count, 2);
  EXPECT_DOUBLE_EQ(testing.mean, 5);
  EXPECT_DOUBLE_EQ(report.PerStep(testing), 0.5);
  EXPECT_DOUBLE_EQ(report.PerStep(report.driver_phases.at("save_checkpoint")), 0.1);
  EXPECT_DOUBLE_EQ(report.PerStep(report.driver_phases.at("train_step")), 0.6);
  EXPECT_DOUBLE_EQ(ToJson(report)["driver_phases"]["testing"]["seconds_per_step"], 0.5);
  EXPECT_EQ(ToJson(report)["driver_phases"]["testing"]["count"], 2);
  EXPECT_THAT(ToText(report), HasSubstr("testing               0.500     5.000       2 of 20"));
  EXPECT_THAT(ToHtml(report), HasSubstr("testing, 2 of 20<"));
}

TEST_F(ReportTest, UpdatesOfFewStepsAreNotOfEveryStep) {
  Write(20, [](int64_t step, json& line) {
    if (step % 10 != 0) {
      line.erase("timing_s/update_weights");
    } else {
      line["timing_s/update_weights"] = 0.3;
    }
  });
  EXPECT_TRUE(Diagnosed().advice.empty());
}

TEST_F(ReportTest, PhasesOfAnUpdateAddUpToAllOfIt) {
  Write(3);
  const Report report = Diagnosed();
  EXPECT_NEAR(report.update_phases.at("other").mean, 0.008, 1e-12);
  double sum = 0;
  for (const auto& [phase, times] : report.update_phases) sum += times.mean;
  EXPECT_NEAR(sum, report.update.mean, 1e-12);
}

TEST_F(ReportTest, LogsHaveLinesOfAnyLength) {
  Write(2);
  const std::string line = "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n";
  folder_.Write("run/logs/trainer-0.log",
                line + "NCCL INFO Channel " + std::string(2000000, 'x') + "\n" + line +
                    "via NCCL INFO Channel via\n via NCCL INFO Channel \n");
  EXPECT_EQ(Diagnosed().nccl_transports, (std::map<std::string, int64_t>{{"P2P/CUMEM", 2}}));
}

TEST_F(ReportTest, TracesOfOtherShapesSayNothing) {
  Write(2);
  folder_.Write("run/trace.json",
                R"({"traceEvents": [1, {"ph": 1}, {"ph": "X", "args": 3}, {"ph": "X", "dur": "long",
                    "name": [], "args": {"unit": "block.0"}}]})");
  EXPECT_EQ(Diagnosed().units.size(), 1u);
}

TEST_F(ReportTest, NamesTheRankThatIsLate) {
  Write(3, [](int64_t, json& line) { line["timing_s/rank.1/backward"] = 0.6; });
  EXPECT_THAT(Diagnosed().advice, Contains(Field(&Advice::finding, HasSubstr("rank 1 is slow"))));
}

TEST_F(ReportTest, SaysWhatHidesCommunication) {
  const auto slow = [](int64_t, json& line) {
    line["timing_s/rank.0/all_gather_wait"] = 0.2;
    line["timing_s/rank.1/all_gather_wait"] = 0.2;
  };
  Write(3, slow);
  EXPECT_THAT(Diagnosed().advice, Contains(Field(&Advice::cure, HasSubstr("prefetch_units=2"))));
  config_.mutable_trainer()->set_shared_memory(false);
  Write(3, slow);
  EXPECT_THAT(Diagnosed().advice,
              Contains(Field(&Advice::cure, HasSubstr("trainer.shared_memory=true"))));
}

TEST_F(ReportTest, AdvisesADeltaWhereUpdatesAreDear) {
  Write(3, [](int64_t, json& line) { line["timing_s/update_weights"] = 0.3; });
  EXPECT_THAT(Diagnosed().advice,
              Contains(Field(&Advice::cure, HasSubstr("weight_transport=delta"))));
}

TEST_F(ReportTest, SeesMemoryThatGrows) {
  Write(40, [](int64_t step, json& line) {
    line["perf/peak_rss_bytes"] = 1e9 + 2e7 * static_cast<double>(step);
  });
  EXPECT_THAT(Diagnosed().advice, Contains(Field(&Advice::finding, HasSubstr("memory grew"))));
}

TEST_F(ReportTest, PassesOverValuesOfAnotherType) {
  Write(2, [](int64_t, json& line) {
    line["perf/peak_rss_bytes"] = "much";
    line["timing_s/update_weights"] = nullptr;
    line["update_weights/exposed_s/wire"] = "long";
  });
  folder_.Write("run/trace.json", R"({"traceEvents": [
    {"ph": "X", "args": 3}, {"ph": 7}, {"ph": "X", "name": [], "dur": "x", "args": {"unit": "a"}}]})");
  folder_.Write("run/updates.jsonl", R"({"step": "x", "links": [{"from": 1, "bytes": "many"}]})"
                                     "\n");
  const Report report = Diagnosed();
  EXPECT_EQ(report.num_steps, 2);
  EXPECT_EQ(report.units.size(), 1);
  EXPECT_EQ(report.links.size(), 1);
}

TEST_F(ReportTest, CountsNcclsTransports) {
  Write(2);
  folder_.Write("run/logs/trainer-0.log",
                "host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
                "host:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via NET/Socket/0\n"
                "host:1:2 [0] NCCL INFO Channel 01/0 : 1[0] -> 0[1] via NET/Socket/0\n");
  const Report report = Diagnosed();
  EXPECT_EQ(report.nccl_transports.at("P2P/CUMEM"), 1);
  EXPECT_EQ(report.nccl_transports.at("NET/Socket/0"), 2);
  EXPECT_THAT(report.advice, Contains(Field(&Advice::finding, HasSubstr("2 of 3 channels"))));
}

TEST_F(ReportTest, OrdersTheTracesUnitsByWhatTheyExpose) {
  Write(2);
  EXPECT_THAT(ToText(Diagnosed()), HasSubstr("No trace"));
  const auto event = [](const char* name, const char* unit, double us) {
    return json{{"ph", "X"}, {"name", name}, {"dur", us}, {"ts", 1}, {"args", {{"unit", unit}}}};
  };
  folder_.Write("run/trace.json",
                json{{"traceEvents",
                      {event("all_gather_wait", "layers.0", 2e5), event("forward", "layers.0", 1e6),
                       event("all_gather_wait", "layers.1", 3e5),
                       event("reduce_scatter_wait", "layers.0", 4e5),
                       json{{"ph", "M"}, {"name", "process_name"}, {"args", {{"name", "x"}}}}}}}
                    .dump());
  const Report report = Diagnosed();
  ASSERT_EQ(report.units.size(), 2u);
  EXPECT_EQ(report.units[0].unit, "layers.0");
  EXPECT_NEAR(report.units[0].all_gather_wait + report.units[0].reduce_scatter_wait, 0.6, 1e-9);
  EXPECT_NEAR(report.units[1].all_gather_wait, 0.3, 1e-9);
  const json as_json = ToJson(report);
  EXPECT_EQ(as_json["units"][0]["unit"], "layers.0");
  EXPECT_EQ(as_json["ranks"].size(), 2u);
  const std::string page = ToHtml(report);
  EXPECT_THAT(page, HasSubstr("<svg"));
  EXPECT_THAT(page, HasSubstr("layers.1"));
  EXPECT_THAT(page, Not(HasSubstr("http")));  // nothing from outside
}

TEST_F(ReportTest, SaysWhatIsNotThere) {
  EXPECT_THAT(Diagnose(folder_ / "nowhere").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no config.yaml")));
  Write(0);
  EXPECT_THAT(Diagnose(folder_ / "run").status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no step is complete")));
  Write(1);
  folder_.Write("run/trace.json", "[1, 2");
  EXPECT_THAT(Diagnose(folder_ / "run").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trace.json")));
}

}  // namespace
}  // namespace tandem::diagnose
