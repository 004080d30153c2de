// What deploy/compose describes, as plain processes: each service in namespaces of its own with an
// address of its own, the file's arguments, environment, volumes and health checks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "common/security/secret.h"
#include "tests/support/addition_data.h"
#include "tests/support/compose_file.h"
#include "tests/support/container_network.h"
#include "tests/support/program.h"
#include "tests/support/run_processes.h"
#include "tests/support/test_data.h"

namespace tandem {
namespace {

using ::tandem::testing::ComposeService;
using ::tandem::testing::ContainerNetwork;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::TempFolder;

constexpr int kSteps = 5;
constexpr absl::Duration kProbe = absl::Seconds(6);

std::string Deploy(const std::string& path) {
  return std::string(std::getenv("TANDEM_SOURCE")) + "/deploy/" + path;
}

// compose.yaml's run, cut short.
std::string ShortRun(const TempFolder& folder) {
  return folder.Write("run.yaml", absl::StrReplaceAll(ReadWhole(Deploy("compose/run.yaml")),
                                                      {{"total_steps: 100", "total_steps: 5"},
                                                       {"test_freq: 25", "test_freq: 0"},
                                                       {"n: 32", "n: 8"}}));
}

class Compose {
 public:
  Compose(ContainerNetwork& network, const TempFolder& folder, std::vector<ComposeService> services)
      : network_(network), folder_(folder), services_(std::move(services)) {}

  // Starts everything in the order that depends_on asks for.
  void Up() {
    for (bool waits_for_others : {false, true}) {
      for (const ComposeService& service : services_) {
        if (service.starts_after_health_of.empty() == waits_for_others) continue;
        for (const std::string& other : service.starts_after_health_of) AwaitHealth(other);
        if (::testing::Test::HasFatalFailure()) return;
        Start(service);
      }
    }
  }

  bool IsHealthy(const std::string& name, std::vector<std::string> command = {}) {
    if (command.empty()) command = Of(name).health_command;
    return network_.Run(*containers_.at(name), command, kProbe);
  }

  rpc::ChildProcess& container(const std::string& name) { return *containers_.at(name); }
  std::string Log(const std::string& name) const { return ReadWhole(folder_ / name + ".log"); }

 private:
  const ComposeService& Of(const std::string& name) {
    return *std::find_if(services_.begin(), services_.end(),
                         [&](const ComposeService& service) { return service.name == name; });
  }

  void Start(const ComposeService& service) {
    testing::ContainerOptions options;
    options.name = service.name;
    options.command = service.command;
    options.environment = service.environment;
    if (auto secret = options.environment.find("TANDEM_GROUP_SECRET");
        secret != options.environment.end()) {
      // What compose refuses to start without, and puts in its place.
      EXPECT_TRUE(absl::StartsWith(secret->second, "${TANDEM_GROUP_SECRET:?")) << secret->second;
      secret->second = group_secret_;
    }
    options.log_path = folder_ / service.name + ".log";
    for (const auto& [source, target] : service.volumes) {
      options.volumes[target] = source == "./run.yaml"                        ? ShortRun(folder_)
                                : absl::StartsWith(source, "${TANDEM_DATA:-") ? DataFolder()
                                                                              : folder_ / source;
      std::filesystem::create_directories(folder_ / "runs");
    }
    auto child = network_.Start(options);
    ASSERT_TRUE(child.ok()) << child.status();
    containers_[service.name] = *std::move(child);
  }

  static std::string DataFolder() {
    return std::filesystem::canonical(testing::TestDataRoot()).string();
  }

  void AwaitHealth(const std::string& name) {
    ASSERT_FALSE(Of(name).health_command.empty()) << name << " has no health check";
    const auto healthy = [&] { return IsHealthy(name) || !containers_.at(name)->running(); };
    ASSERT_TRUE(testing::Eventually(healthy, 120, 200)) << name << " got not healthy\n"
                                                        << Log(name);
    ASSERT_TRUE(containers_.at(name)->running()) << Log(name);
  }

  ContainerNetwork& network_;
  const TempFolder& folder_;
  const std::string group_secret_ = absl::BytesToHexString(security::DrawSecret());
  const std::vector<ComposeService> services_;
  std::map<std::string, std::unique_ptr<rpc::ChildProcess>> containers_;
};

TEST(ComposeFile, TrainsAcrossNetworkNamespaces) {
  SKIP_WITHOUT_DATA("models/digit-completion");
  const TempFolder folder;
  const auto services = testing::ReadComposeFile(Deploy("compose/compose.yaml"), "cpu");
  ASSERT_EQ(services.size(), 5);
  std::vector<std::string> names;
  for (const ComposeService& service : services) names.push_back(service.name);
  auto network = ContainerNetwork::Create(names);
  if (absl::IsPermissionDenied(network.status())) {
    GTEST_SKIP() << "network namespaces: " << network.status().message();
  }
  ASSERT_TRUE(network.ok()) << network.status();
  Compose compose(**network, folder, services);

  for (const ComposeService& service : services) {
    EXPECT_EQ(service.environment.count("TANDEM_GROUP_SECRET"),
              service.environment.count("MASTER_ADDR"))
        << service.name;
  }
  compose.Up();
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(compose.container("driver").Wait(absl::Seconds(300))) << compose.Log("driver");

  ASSERT_TRUE(compose.container("driver").ExitStatus().ok()) << compose.Log("driver");
  const auto metrics = JsonLines(ReadWhole(folder / "runs/digits/metrics.jsonl"));
  ASSERT_EQ(metrics.size(), kSteps + 1);  // from step 0, before training
  EXPECT_EQ(metrics.back()["training/policy_version"], kSteps);
  for (size_t step = 1; step <= kSteps; ++step) {
    EXPECT_TRUE(std::isfinite(metrics[step]["actor/grad_norm"].get<double>())) << step;
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "runs/digits/model/model.safetensors"));
  // Every step's weights came over the network.
  const auto model_bytes = static_cast<int64_t>(
      std::filesystem::file_size(testing::TestData("models/digit-completion/model.safetensors")));
  for (const char* name : {"rollout-0", "rollout-1"}) {
    EXPECT_GT((*network)->ReceivedBytes(name).value_or(0), kSteps * model_bytes) << name;
    EXPECT_TRUE(compose.IsHealthy(name, {"tandem", "health", "--endpoint", "127.0.0.1:5002",
                                         "--service", "tandem.rollout.v1.RolloutService"}))
        << name;
  }
  for (const char* name : {"trainer-0", "trainer-1", "rollout-0", "rollout-1"}) {
    EXPECT_TRUE(compose.IsHealthy(name)) << name;
  }
  for (const char* name : {"trainer-0", "trainer-1", "rollout-0", "rollout-1"}) {
    compose.container(name).Terminate();
  }
  for (const char* name : {"trainer-0", "trainer-1", "rollout-0", "rollout-1"}) {
    EXPECT_TRUE(compose.container(name).Wait(absl::Seconds(120))) << name;
    EXPECT_EQ(compose.container(name).ExitDescription(), "exited with 0") << compose.Log(name);
  }
}

}  // namespace
}  // namespace tandem
