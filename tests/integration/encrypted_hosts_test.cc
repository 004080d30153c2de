// A run whose processes each have a network of their own and TLS: what their ranks send each other
// is TLS too, in training and in updates; and a rollout that is told otherwise takes no update.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/addition_data.h"
#include "tests/support/container_network.h"
#include "tests/support/program.h"
#include "tests/support/secure_run.h"
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
using ::testing::HasSubstr;

constexpr char kModel[] = "models/digit-completion";
constexpr char kTask[] = "tasks/digit-completion/train.jsonl";

class EncryptedHosts : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_DATA(kModel);
    auto network = ContainerNetwork::Create({"trainer-0", "trainer-1", "rollout-0"});
    if (absl::IsPermissionDenied(network.status())) {
      GTEST_SKIP() << "network namespaces: " << network.status().message();
    }
    ASSERT_TRUE(network.ok()) << network.status();
    network_ = *std::move(network);
    config_ = folder_.Write("run.yaml", R"(
model: {path: )" + testing::TestData(kModel) +
                                            R"(, dtype: float32}
data: {train_files: [)" + testing::TestData(kTask) +
                                            R"(], prompt_suffix: "<sep>", train_batch_size: 4}
rollout: {n: 4, max_tokens: 8, kv_cache_megabytes: 8, endpoints: ["10.77.0.12:5001"]}
trainer: {ranks: 2, endpoint: "10.77.0.10:5000", total_steps: 2, test_freq: 0, collective_timeout_s: 60, weight_transport: )" +
                                            GetParam() + R"(}
reward: {name: prefix_match}
run_dir: )" + (folder_ / "run") + "\n");
  }

  void Start(const std::map<std::string, std::string>& of_rollout) {
    for (const char* rank : {"0", "1"}) {
      StartOne(std::string("trainer-") + rank,
               {"tandem-trainer", "--config", config_, "--listen", "0.0.0.0:5000"},
               {{"RANK", rank},
                {"LOCAL_RANK", "0"},
                {"WORLD_SIZE", "2"},
                {"MASTER_ADDR", "trainer-0"},
                {"MASTER_PORT", "29500"},
                {"TANDEM_GROUP_SECRET", "what the ranks of this trainer know"}});
    }
    StartOne("rollout-0", {"tandem-rollout", "--config", config_, "--listen", "0.0.0.0:5001"},
             of_rollout);
    for (const char* endpoint : {"10.77.0.10:5000", "10.77.0.12:5001"}) {
      const ProgramResult healthy =
          RunProgram("tandem", {"health", "--endpoint", endpoint, "--wait", "--timeout", "150"});
      ASSERT_EQ(healthy.exit_code, 0) << endpoint << healthy.err << Logs();
    }
  }

  std::string Logs() const {
    std::string all;
    for (const auto& [name, child] : containers_) {
      all += name + ":\n" + ReadWhole(folder_ / name + ".log");
    }
    return all;
  }

  void StartOne(const std::string& name, std::vector<std::string> command,
                std::map<std::string, std::string> environment) {
    testing::ContainerOptions options;
    options.name = name;
    options.command = std::move(command);
    options.environment = std::move(environment);
    options.environment.insert(certificates_.begin(), certificates_.end());
    options.log_path = folder_ / name + ".log";
    auto child = network_->Start(options);
    ASSERT_TRUE(child.ok()) << child.status();
    containers_[name] = *std::move(child);
  }

  const TempFolder folder_;
  const testing::TestAuthority authority_{folder_, "ca"};
  const std::map<std::string, std::string> certificates_ =
      testing::Certificates(folder_, authority_);
  const testing::Environment environment_{certificates_};
  std::unique_ptr<ContainerNetwork> network_;
  std::map<std::string, std::unique_ptr<rpc::ChildProcess>> containers_;
  std::string config_;
};

TEST_P(EncryptedHosts, TrainOverTlsAlone) {
  Start({});
  ASSERT_FALSE(HasFatalFailure());
  const ProgramResult doctor =
      RunProgram("tandem", {"doctor", "--json", "--config", config_, "--probe-megabytes", "4"});
  EXPECT_EQ(doctor.exit_code, 0) << doctor.out << doctor.err << Logs();
  EXPECT_THAT(doctor.out, HasSubstr("3 processes over TLS, every sum right"));
  const ProgramResult run = RunProgram("tandem", {"train", "--config", config_});
  ASSERT_EQ(run.exit_code, 0) << run.err << Logs();
  const std::vector<json> updates = JsonLines(ReadWhole(folder_ / "run/updates.jsonl"));
  EXPECT_GE(updates.size(), 3u);
  std::set<std::string> transports;
  for (const json& update : updates) {
    for (const json& link : update["links"]) transports.insert(link["transport"]);
  }
  EXPECT_EQ(transports, std::set<std::string>{"tls"});
}

TEST_P(EncryptedHosts, RefuseARolloutThatIsToldOtherwise) {
  Start({{"TANDEM_DATA_PLANE_ENCRYPTION", "never"}});
  ASSERT_FALSE(HasFatalFailure());
  const ProgramResult run = RunProgram("tandem", {"train", "--config", config_});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_THAT(run.err, HasSubstr("'never' (--data-plane-encryption never, TLS on)"));
  EXPECT_THAT(run.err, HasSubstr("'between hosts' (--data-plane-encryption auto, TLS on)"));
}

INSTANTIATE_TEST_SUITE_P(Transports, EncryptedHosts, ::testing::Values("reshard", "broadcast"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem
