// tandem train --trace: one trace a step, through every process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/support/addition_data.h"
#include "tests/support/program.h"

namespace tandem {
namespace {

using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;
using ::testing::IsSupersetOf;

struct Trace {
  std::map<int64_t, std::string> processes;     // by pid
  std::vector<nlohmann::json> spans;            // those that belong to a trace
  std::map<std::string, nlohmann::json> by_id;  // span id -> span
};

Trace Read(const std::string& path) {
  Trace out;
  const nlohmann::json file = nlohmann::json::parse(ReadWhole(path));
  for (const auto& event : file["traceEvents"]) {
    if (event["ph"] == "M" && event["name"] == "process_name") {
      out.processes[event["pid"]] = event["args"]["name"];
    } else if (event["ph"] == "X" && event.contains("args") && event["args"].contains("trace_id")) {
      out.spans.push_back(event);
      out.by_id[event["args"]["span_id"]] = event;
    }
  }
  return out;
}

TEST(RunTrace, FollowsEachStepThroughEveryProcess) {
  const TempFolder folder;
  std::vector<std::string> args = TinyRun(folder, "train");
  args.push_back("--trace");

  const ProgramResult result = RunProgram("tandem", args);

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Trace trace = Read(folder / "run/trace.json");
  std::set<std::string> names;
  for (const auto& [pid, name] : trace.processes) names.insert(name);
  EXPECT_EQ(names,
            (std::set<std::string>{"driver", "rollout-0", "rollout-1", "trainer-0", "trainer-1"}));

  for (const std::string step : {"step 1", "step 2", "step 3"}) {
    std::string trace_id;
    for (const auto& span : trace.spans) {
      if (span["name"] == step) trace_id = span["args"]["trace_id"];
    }
    ASSERT_NE(trace_id, "") << step;
    std::set<std::string> seen;  // PROCESS: SPAN
    for (const auto& span : trace.spans) {
      if (span["args"]["trace_id"] != trace_id) continue;
      const std::string process = trace.processes.at(span["pid"]);
      seen.insert(process + ": " + span["name"].get<std::string>());
      if (!span["args"].contains("parent_id")) {
        EXPECT_EQ(span["name"], step);
        continue;
      }
      // No span hangs in the air.
      const auto parent = trace.by_id.find(span["args"]["parent_id"]);
      ASSERT_NE(parent, trace.by_id.end()) << span.dump();
      EXPECT_EQ(parent->second["args"]["trace_id"], trace_id) << span.dump();
      EXPECT_GE(span["ts"].get<double>() + 1e5, parent->second["ts"].get<double>()) << span.dump();
    }
    EXPECT_THAT(seen,
                IsSupersetOf({"driver: generate", "driver: train step", "driver: publish",
                              "trainer-0: /tandem.trainer.v1.TrainerService/TrainStep",
                              "trainer-0: TrainStep", "trainer-1: TrainStep", "trainer-0: forward",
                              "trainer-1: backward", "trainer-1: all_gather_wait",
                              "trainer-0: PublishWeights", "trainer-0: commit",
                              "rollout-0: /tandem.rollout.v1.WeightService/CommitUpdate"}))
        << step;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "run/logs/driver.trace.json"));
}

}  // namespace
}  // namespace tandem
