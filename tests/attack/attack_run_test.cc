// A run whose every listening port is attacked from its first moment to its last samples the same
// tokens as a quiet one: every kind of attacker at once, with few descriptors to spare and with as
// many as the machine gives, in plaintext and over mutual TLS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "common/rpc/child_process.h"
#include "tests/support/program.h"
#include "tests/support/secure_run.h"
#include "tests/support/status_matchers.h"

namespace tandem {
namespace {

using ::tandem::testing::BinaryPath;
using ::tandem::testing::Certificates;
using ::tandem::testing::Environment;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::QuietSamples;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::Repeatable;
using ::tandem::testing::RunProgram;
using ::tandem::testing::Samples;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TestAuthority;
using ::tandem::testing::TinyRun;
using ::tandem::testing::With;

constexpr int kNumSteps = 60;

// One attacking process.
class Attacker {
 public:
  Attacker(const std::string& kind, const std::string& text, int connections,
           const TempFolder& logs)
      : log_path_(logs / (kind + ".log")) {
    absl::StatusOr<std::unique_ptr<rpc::ChildProcess>> process =
        rpc::ChildProcess::Start({.name = kind,
                                  .argv = {ATTACKER, kind, text, std::to_string(connections)},
                                  .log_path = log_path_});
    EXPECT_OK(process.status());
    if (process.ok()) process_ = *std::move(process);
  }

  // What it has done, once it is told to end.
  nlohmann::json Stop() {
    if (process_ == nullptr) return {};
    process_->Terminate();
    EXPECT_TRUE(process_->Wait(absl::Seconds(30)));
    const std::vector<nlohmann::json> lines = JsonLines(ReadWhole(log_path_));
    EXPECT_EQ(lines.size(), 1u) << ReadWhole(log_path_);
    return lines.empty() ? nlohmann::json() : lines.front();
  }

 private:
  const std::string log_path_;
  std::unique_ptr<rpc::ChildProcess> process_;
};

// Runs `tandem` from a shell that has limited its descriptors; 0: as many as the machine gives.
ProgramResult RunLimited(int max_files, const std::vector<std::string>& args) {
  const std::string limit = max_files == 0 ? "$(ulimit -Hn)" : std::to_string(max_files);
  return RunProgram(
      "/bin/sh",
      With({"-c", "ulimit -n " + limit + " && exec \"$@\"", "sh", BinaryPath("tandem")}, args),
      900);
}

class AttackRunTest : public ::testing::TestWithParam<std::tuple<int, const char*>> {};

TEST_P(AttackRunTest, SamplesWhatAQuietRunSamples) {
  const auto [max_files, security] = GetParam();
  // The one transport moves weights over Gloo, the other over sockets of our own.
  const std::string transport = max_files == 0 ? "reshard" : "broadcast";
  const std::vector<std::string> more =
      With(Repeatable(kNumSteps, 11), {"--metrics", "127.0.0.1:0", "--openai-listen", "127.0.0.1:0",
                                       "--set", "trainer.weight_transport=" + transport});
  const std::vector<nlohmann::json> expected = QuietSamples(more, kNumSteps);
  const TempFolder folder, secrets, logs;
  const TestAuthority authority(secrets, "ca");
  const Environment environment(security == std::string("certificates")
                                    ? Certificates(secrets, authority)
                                    : std::map<std::string, std::string>());
  std::vector<std::unique_ptr<Attacker>> attackers;
  // More connections than the processes have descriptors, where these are few.
  const std::map<std::string, int> crowd = {
      {"fill", max_files == 0 ? 4000 : 1200}, {"trickle", 60}, {"reset", 20}, {"flood", 2}};
  for (const auto& [kind, connections] : crowd) {
    attackers.push_back(std::make_unique<Attacker>(kind, folder.path(), connections, logs));
  }

  const ProgramResult result = RunLimited(max_files, With(TinyRun(folder, "train"), more));

  for (const auto& attacker : attackers) {
    const nlohmann::json done = attacker->Stop();
    EXPECT_GE(done.value("ports", 0), 8) << done;  // of the driver, two ranks and two rollouts
    EXPECT_GT(done.value("opened", 0), 100) << done;
    RecordProperty(done.value("kind", "?"), done.dump());
    std::printf("%s\n", done.dump().c_str());
  }
  ASSERT_EQ(result.exit_code, 0) << result.err.substr(0, 20000);
  EXPECT_EQ(Samples(folder, kNumSteps), expected);
}

std::string CaseName(const ::testing::TestParamInfo<std::tuple<int, const char*>>& info) {
  const auto [max_files, security] = info.param;
  return std::string(security) + (max_files == 0 ? "AsManyAsTheMachineGives" : "FewFiles");
}

INSTANTIATE_TEST_SUITE_P(By, AttackRunTest,
                         ::testing::Combine(::testing::Values(1024, 0),
                                            ::testing::Values("plain", "certificates")),
                         CaseName);

}  // namespace
}  // namespace tandem
