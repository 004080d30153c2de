// `tandem doctor` over a fleet whose processes each have a network of their own: whole, with a pair
// cut off, with ports for data shut; and a link that is slow, as `tandem diagnose` finds it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/addition_data.h"
#include "tests/support/container_network.h"
#include "tests/support/program.h"
#include "tests/support/test_data.h"

namespace tandem {
namespace {

using nlohmann::json;
using ::tandem::testing::ContainerNetwork;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kModel[] = "models/digit-completion";
constexpr char kTask[] = "tasks/digit-completion/train.jsonl";
constexpr absl::Duration kSetUp = absl::Seconds(10);

// The addresses that ContainerNetwork gives, in the order of the names.
const std::map<std::string, std::string>& Addresses() {
  static const auto* addresses =
      new std::map<std::string, std::string>{{"trainer-0", "10.77.0.10"},
                                             {"trainer-1", "10.77.0.11"},
                                             {"rollout-0", "10.77.0.12"},
                                             {"rollout-1", "10.77.0.13"}};
  return *addresses;
}

class Fleet {
 public:
  Fleet(ContainerNetwork& network, const TempFolder& folder) : network_(network), folder_(folder) {
    config_ = folder.Write("run.yaml", R"(
model: {path: )" + testing::TestData(kModel) +
                                           R"(, dtype: float32}
data: {train_files: [)" + testing::TestData(kTask) +
                                           R"(], prompt_suffix: "<sep>", train_batch_size: 4}
rollout: {n: 4, max_tokens: 8, replicas: 2, kv_cache_megabytes: 8, endpoints: ["10.77.0.12:5001", "10.77.0.13:5001"]}
trainer: {ranks: 2, endpoint: "10.77.0.10:5000", total_steps: 3, test_freq: 0, collective_timeout_s: 60}
reward: {name: prefix_match}
run_dir: )" + (folder / "run") + "\n");
  }

  void Start() {
    for (const char* rank : {"0", "1"}) {
      StartOne(std::string("trainer-") + rank,
               {"tandem-trainer", "--config", config_, "--listen", "0.0.0.0:5000"},
               {{"RANK", rank},
                {"LOCAL_RANK", "0"},
                {"WORLD_SIZE", "2"},
                {"MASTER_ADDR", "trainer-0"},
                {"MASTER_PORT", "29500"}});
      StartOne(std::string("rollout-") + rank,
               {"tandem-rollout", "--config", config_, "--listen", "0.0.0.0:5001"}, {});
    }
    for (const char* endpoint : {"10.77.0.10:5000", "10.77.0.12:5001", "10.77.0.13:5001"}) {
      const ProgramResult healthy =
          RunProgram("tandem", {"health", "--endpoint", endpoint, "--wait", "--timeout", "150"});
      ASSERT_EQ(healthy.exit_code, 0) << endpoint << healthy.err;
    }
  }

  // Runs a program of the system within the container.
  void In(const std::string& name, const std::vector<std::string>& command) {
    EXPECT_TRUE(network_.Run(*containers_.at(name), command, kSetUp))
        << name << ": " << command[0] << " " << command[1];
  }

  std::vector<json> Doctor(int expected_exit) {
    const ProgramResult result =
        RunProgram("tandem", {"doctor", "--json", "--config", config_, "--probe-megabytes", "8"});
    EXPECT_EQ(result.exit_code, expected_exit) << result.out << result.err;
    last_ = result.out;
    return JsonLines(result.out);
  }

  const std::string& config() const { return config_; }
  const std::string& last_doctor() const { return last_; }
  std::string Logs() const {
    std::string all;
    for (const auto& [name, address] : Addresses()) {
      all += name + ":\n" + ReadWhole(folder_ / name + ".log");
    }
    return all;
  }

 private:
  void StartOne(const std::string& name, std::vector<std::string> command,
                std::map<std::string, std::string> environment) {
    testing::ContainerOptions options;
    options.name = name;
    options.command = std::move(command);
    options.environment = std::move(environment);
    options.environment["TANDEM_INSECURE_PLAINTEXT"] = "1";
    options.log_path = folder_ / name + ".log";
    auto child = network_.Start(options);
    ASSERT_TRUE(child.ok()) << child.status();
    containers_[name] = *std::move(child);
  }

  ContainerNetwork& network_;
  const TempFolder& folder_;
  std::string config_;
  std::string last_;
  std::map<std::string, std::unique_ptr<rpc::ChildProcess>> containers_;
};

std::vector<json> Errors(const std::vector<json>& findings) {
  std::vector<json> out;
  for (const json& finding : findings) {
    if (finding["severity"] == "error") out.push_back(finding);
  }
  return out;
}

// The finding about `what`; null where there is none.
json FindingOf(const std::vector<json>& findings, const std::string& what) {
  for (const json& finding : findings) {
    if (finding["what"].get<std::string>().rfind(what, 0) == 0) return finding;
  }
  return nullptr;
}

void ExpectWhole(const std::vector<json>& findings) {
  const json reach = FindingOf(findings, "reach");
  ASSERT_FALSE(reach.is_null());
  // Each trainer rank and both rollouts; each rollout, the leader and the other rollout.
  EXPECT_THAT(reach["found"].get<std::string>(),
              HasSubstr("8 of 8 pairs of 4 processes on 4 hosts reach each other"));
  EXPECT_EQ(reach["measured"]["pairs"].size(), 8u);
  const json reduce = FindingOf(findings, "all-reduce by gloo");
  ASSERT_FALSE(reduce.is_null());
  EXPECT_THAT(reduce["found"].get<std::string>(), HasSubstr("4 processes, every sum right"));
  ASSERT_EQ(reduce["measured"]["reduces"].size(), 2u);
  EXPECT_EQ(reduce["measured"]["reduces"][1]["bytes"], 8 << 20);
  EXPECT_GT(reduce["measured"]["reduces"][1]["bytes_per_second"].get<double>(), 0);
  EXPECT_EQ(reduce["measured"]["pairs"].size(), 12u);
  const json memory = FindingOf(findings, "memory of host");
  ASSERT_FALSE(memory.is_null());
  ASSERT_EQ(memory["measured"]["processes"].size(), 4u);
  for (const json& process : memory["measured"]["processes"]) {
    EXPECT_GT(process["predicted_bytes"].get<int64_t>(), 0);
    EXPECT_GT(process["resident_bytes"].get<int64_t>(), 0);
  }
}

// Errors are of the pair of rollouts, both ways, and name both ends' addresses.
void ExpectPair(const std::vector<json>& errors, const std::string& prefix) {
  std::map<std::string, int> seen;
  for (const json& error : errors) {
    const std::string what = error["what"];
    const std::string found = error["found"];
    EXPECT_EQ(what.find("trainer"), std::string::npos) << error.dump();
    if (what.rfind(prefix + "rollout 10.77.0.12:5001 -> rollout 10.77.0.13:5001", 0) == 0) {
      ++seen["there"];
      EXPECT_THAT(found, AllOf(HasSubstr("10.77.0.12"), HasSubstr("to 10.77.0.13:")));
    }
    if (what.rfind(prefix + "rollout 10.77.0.13:5001 -> rollout 10.77.0.12:5001", 0) == 0) {
      ++seen["back"];
      EXPECT_THAT(found, AllOf(HasSubstr("10.77.0.13"), HasSubstr("to 10.77.0.12:")));
    }
    EXPECT_NE(error["cure"], "");
  }
  EXPECT_EQ(seen["there"], 1);
  EXPECT_EQ(seen["back"], 1);
}

TEST(FleetDoctor, FindsWhatStandsBetweenHosts) {
  SKIP_WITHOUT_DATA(kModel);
  const TempFolder folder;
  auto network = ContainerNetwork::Create({"trainer-0", "trainer-1", "rollout-0", "rollout-1"});
  if (absl::IsPermissionDenied(network.status())) {
    GTEST_SKIP() << "network namespaces: " << network.status().message();
  }
  ASSERT_TRUE(network.ok()) << network.status();
  Fleet fleet(**network, folder);
  fleet.Start();
  ASSERT_FALSE(HasFatalFailure()) << fleet.Logs();

  // All is well.
  ExpectWhole(fleet.Doctor(0));
  ASSERT_FALSE(HasFatalFailure()) << fleet.last_doctor() << fleet.Logs();

  // One pair cannot reach each other; the services' ports and all others.
  fleet.In("rollout-0", {"ip", "route", "add", "unreachable", "10.77.0.13/32"});
  std::vector<json> errors = Errors(fleet.Doctor(1));
  std::vector<json> of_services, of_data;
  for (const json& error : errors) {
    (error["what"].get<std::string>().rfind("data ", 0) == 0 ? of_data : of_services)
        .push_back(error);
  }
  ExpectPair(of_services, "");
  ExpectPair(of_data, "data ");
  fleet.In("rollout-0", {"ip", "route", "del", "unreachable", "10.77.0.13/32"});

  // Services reach each other, and the ports over which weights move are shut.
  for (const char* end : {"dport", "sport"}) {
    fleet.In("rollout-0", {"ip", "rule", "add", "to", "10.77.0.13", "ipproto", "tcp", end, "5001",
                           "lookup", "main", "priority", end[0] == 'd' ? "10" : "11"});
  }
  fleet.In("rollout-0", {"ip", "route", "add", "unreachable", "default", "table", "77"});
  fleet.In("rollout-0",
           {"ip", "rule", "add", "to", "10.77.0.13", "lookup", "77", "priority", "12"});
  const std::vector<json> findings = fleet.Doctor(1);
  EXPECT_THAT(FindingOf(findings, "reach")["found"].get<std::string>(), HasSubstr("8 of 8 pairs"));
  ExpectPair(Errors(findings), "data ");
  EXPECT_TRUE(FindingOf(findings, "all-reduce").is_null());
  for (const char* priority : {"10", "11", "12"}) {
    fleet.In("rollout-0", {"ip", "rule", "del", "priority", priority});
  }
  ExpectWhole(fleet.Doctor(0));
  const std::string doctor = folder.Write("doctor.jsonl", fleet.last_doctor());

  // A trainer rank whose adapter is slow.
  fleet.In("trainer-1", {"tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "80mbit",
                         "burst", "64kbit", "latency", "200ms"});
  const ProgramResult run = RunProgram("tandem", {"train", "--config", fleet.config()});
  ASSERT_EQ(run.exit_code, 0) << run.err << fleet.Logs();
  const ProgramResult result =
      RunProgram("tandem", {"diagnose", "--json", "--doctor", doctor, folder / "run"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json report = json::parse(result.out);
  ASSERT_EQ(report["links"].size(), 3u) << report["links"].dump(1);
  std::map<std::string, json> by_sender;
  for (const json& link : report["links"]) {
    EXPECT_EQ(link["transport"], "socket");
    EXPECT_EQ(link["updates"].size(), 4u);  // before the first step, and after each
    by_sender[link["from"]] = link;
  }
  // Each byte that the trainer sent is on one of its links, and the second replica got them all.
  const auto metrics = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
  const double sent = metrics.back()["update_weights/sent_bytes"];
  const double last[] = {by_sender["trainer/0"]["updates"].back()["bytes"],
                         by_sender["trainer/1"]["updates"].back()["bytes"],
                         by_sender["rollout-0/0"]["updates"].back()["bytes"]};
  EXPECT_EQ(last[0] + last[1], sent);
  EXPECT_EQ(last[2], sent);
  bool named = false;
  for (const json& advice : report["advice"]) {
    const std::string finding = advice["finding"];
    named |= finding.find("trainer/1 -> rollout-0/0") != std::string::npos;
    EXPECT_EQ(finding.find("the link trainer/0"), std::string::npos) << finding;
  }
  EXPECT_TRUE(named) << report["advice"].dump(1) << report["links"].dump(1);
}

}  // namespace
}  // namespace tandem
