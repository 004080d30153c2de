// Rollouts that are killed or stopped in the middle of a weight update.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <string>
#include <tuple>

#include "absl/time/clock.h"
#include "tests/fakes/weight_pair.h"
#include "tests/support/status_matchers.h"

extern char** environ;

namespace tandem {
namespace {

using ::tandem::testing::Endpoint;
using ::tandem::testing::ExpectLive;
using ::tandem::testing::FakeRollout;
using ::tandem::testing::FakeTrainer;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TestModel;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RolloutProcess {
 public:
  RolloutProcess(std::string action, int tensor) {
    int fds[2];
    EXPECT_EQ(pipe(fds), 0);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, fds[1], 1);
    posix_spawn_file_actions_addclose(&files, fds[0]);
    std::vector<std::string> args = {FAILING_ROLLOUT, std::move(action), std::to_string(tensor)};
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &files, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&files);
    close(fds[1]);
    FILE* out = fdopen(fds[0], "r");
    std::array<char, 128> line{};
    EXPECT_NE(std::fgets(line.data(), line.size(), out), nullptr);
    std::fclose(out);
    address_ = line.data();
    address_ = address_.substr(0, address_.find('\n'));
  }
  ~RolloutProcess() { Kill(); }
  void Kill() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  trainer::ReplicaEndpoint endpoint(std::string id) const { return {std::move(id), {address_}}; }

 private:
  pid_t pid_ = -1;
  std::string address_;
};

TestModel Version(int64_t version) {
  TestModel model = TestModel::Small();
  model.offset = static_cast<double>(version);
  return model;
}

// The tensor at which it happens, the backend of the update's group, and how the bytes travel.
class WeightUpdateFault
    : public ::testing::TestWithParam<std::tuple<int, std::string, std::string>> {};

TEST_P(WeightUpdateFault, AKilledReplicaIsNamedTheOthersKeepTheOldVersionAndTheNextUpdateSucceeds) {
  FakeRollout survivor(Version(0));
  const auto& [tensor, backend, transport] = GetParam();
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(Version(0), {.bucket_bytes = 64,
                                                                      .backend = backend,
                                                                      .transport = transport}));
  trainer->SetWeights(Version(1));
  ASSERT_OK(trainer->Publish(1, {Endpoint("survivor", survivor)}).status());

  RolloutProcess victim("kill", tensor);
  trainer->SetWeights(Version(2));
  const absl::Time start = absl::Now();
  EXPECT_THAT(trainer->Publish(2, {Endpoint("survivor", survivor), victim.endpoint("victim")}),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("replica victim, rank 0"), HasSubstr("phase"),
                             Not(HasSubstr("replica survivor")))));
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
  ExpectLive(survivor, Version(1), 1);
  EXPECT_OK(trainer->Barrier());

  RolloutProcess back("live", 0);
  ASSERT_OK_AND_ASSIGN(const auto report, trainer->Publish(2, {Endpoint("survivor", survivor),
                                                               back.endpoint("victim")}));
  ExpectLive(survivor, Version(2), 2);
  EXPECT_TRUE(report.replicas[0].committed && report.replicas[1].committed);
  EXPECT_EQ(report.model_digest, survivor.store.live_model_digest());
}

std::vector<std::tuple<int, std::string, std::string>> Faults() {
  std::vector<std::tuple<int, std::string, std::string>> faults;
  for (const int tensor : {0, 2, 5}) {
    for (const char* const backend : {"gloo", "shared_memory"}) {
      faults.emplace_back(tensor, backend, "broadcast");
    }
    for (const char* const backend : {"socket", "messages"}) {
      for (const char* const transport : {"reshard", "delta"}) {
        faults.emplace_back(tensor, backend, transport);
      }
    }
  }
  return faults;
}

INSTANTIATE_TEST_SUITE_P(AtTensor, WeightUpdateFault, ::testing::ValuesIn(Faults()));

class WeightTransportFault : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, WeightTransportFault,
                         ::testing::Values("broadcast", "reshard", "delta"));

TEST_P(WeightTransportFault, AStoppedReplicaIsNamedWithinTheDeadline) {
  FakeRollout survivor(Version(0));
  RolloutProcess victim("stop", 2);
  ASSERT_OK_AND_ASSIGN(
      auto trainer, FakeTrainer::Create(Version(0), {.bucket_bytes = 64, .transport = GetParam()}));
  EXPECT_THAT(
      trainer->Publish(1, {Endpoint("survivor", survivor), victim.endpoint("victim")},
                       absl::Seconds(2)),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("replica victim, rank 0"), Not(HasSubstr("replica survivor")))));
  EXPECT_EQ(survivor.store.live_version(), -1);
  EXPECT_OK(trainer->Barrier());
  victim.Kill();
  EXPECT_OK(trainer->Publish(1, {Endpoint("survivor", survivor)}).status());
  ExpectLive(survivor, Version(0), 1);
}

TEST_P(WeightTransportFault, UnderAvailableTheSurvivorsGoOnWithoutAKilledReplica) {
  FakeRollout survivor(Version(0));
  RolloutProcess victim("kill", 2);
  ASSERT_OK_AND_ASSIGN(auto trainer,
                       FakeTrainer::Create(Version(0), {.bucket_bytes = 64,
                                                        .policy = trainer::UpdatePolicy::kAvailable,
                                                        .transport = GetParam()}));
  ASSERT_OK_AND_ASSIGN(const auto report, trainer->Publish(1, {victim.endpoint("victim"),
                                                               Endpoint("survivor", survivor)}));
  EXPECT_FALSE(report.replicas[0].committed);
  EXPECT_THAT(report.replicas[0].error,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("replica victim")));
  EXPECT_TRUE(report.replicas[1].committed);
  ExpectLive(survivor, Version(0), 1);
}

TEST_P(WeightTransportFault, UnderAvailableAStoppedReplicaLeavesTimeForTheOthers) {
  FakeRollout survivor(Version(0));
  RolloutProcess victim("stop", 2);
  ASSERT_OK_AND_ASSIGN(auto trainer,
                       FakeTrainer::Create(Version(0), {.bucket_bytes = 64,
                                                        .policy = trainer::UpdatePolicy::kAvailable,
                                                        .transport = GetParam()}));
  ASSERT_OK_AND_ASSIGN(
      const auto report,
      trainer->Publish(1, {victim.endpoint("victim"), Endpoint("survivor", survivor)},
                       absl::Seconds(10)));
  EXPECT_FALSE(report.replicas[0].committed);
  EXPECT_TRUE(report.replicas[1].committed);
  ExpectLive(survivor, Version(0), 1);
}

TEST_P(WeightTransportFault, ARolloutThatRestartsAtTheSameAddressGetsTheNextVersion) {
  ASSERT_OK_AND_ASSIGN(
      auto trainer, FakeTrainer::Create(Version(0), {.bucket_bytes = 64, .transport = GetParam()}));
  FakeRollout other(Version(0));
  auto rollout = std::make_unique<FakeRollout>(Version(0));
  ASSERT_OK(rollout->status);
  const std::string address = rollout->address();
  ASSERT_OK(trainer->Publish(1, {{"r", {address}}, Endpoint("other", other)}).status());
  rollout.reset();
  EXPECT_THAT(trainer->Publish(2, {{"r", {address}}, Endpoint("other", other)}, absl::Seconds(20)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("replica r")));
  ExpectLive(other, Version(0), 1);
  rollout = std::make_unique<FakeRollout>(Version(0), address);
  ASSERT_OK(rollout->status);
  ASSERT_OK(trainer->Publish(2, {{"r", {address}}, Endpoint("other", other)}).status());
  ExpectLive(*rollout, Version(0), 2);
  ExpectLive(other, Version(0), 2);
  // And without a failed update in between.
  rollout.reset();
  rollout = std::make_unique<FakeRollout>(Version(0), address);
  ASSERT_OK(rollout->status);
  ASSERT_OK(trainer->Publish(3, {{"r", {address}}, Endpoint("other", other)}).status());
  ExpectLive(*rollout, Version(0), 3);
}

constexpr rollout::StreamReader::Options kImpatient = {.bucket_bytes = 64,
                                                       .patience = absl::Seconds(2)};

// How a replica that others read from goes away in the middle, and how bytes travel else.
class StreamSourceFault : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};
INSTANTIATE_TEST_SUITE_P(Sources, StreamSourceFault,
                         ::testing::Combine(::testing::Values("kill_read", "stop_read"),
                                            ::testing::Values("reshard", "delta")));

TEST_P(StreamSourceFault, WhereItIsTheFirstOfTwoTheLateReplicaReadsFromTheOther) {
  const auto& [action, transport] = GetParam();
  RolloutProcess victim(action, 2);
  FakeRollout other(Version(0)), late(Version(0), "127.0.0.1:0", kImpatient);
  ASSERT_OK_AND_ASSIGN(
      auto trainer, FakeTrainer::Create(Version(0), {.bucket_bytes = 64, .transport = transport}));
  ASSERT_OK(trainer->Publish(1, {victim.endpoint("victim"), Endpoint("other", other)}).status());
  ASSERT_OK_AND_ASSIGN(const auto report,
                       trainer->Publish(1, {victim.endpoint("victim"), Endpoint("other", other),
                                            Endpoint("late", late)}));
  ExpectLive(late, Version(0), 1);
  EXPECT_EQ(report.replicas[2].fed_by, "other");
  EXPECT_EQ(report.sent_bytes, 0);
  EXPECT_EQ(late.store.live_model_digest(), other.store.live_model_digest());
  EXPECT_OK(trainer->Barrier());
}

TEST_P(StreamSourceFault, WhereItIsTheOnlyOneTheTrainerFeedsTheLateReplica) {
  const auto& [action, transport] = GetParam();
  RolloutProcess victim(action, 2);
  FakeRollout late(Version(0), "127.0.0.1:0", kImpatient);
  ASSERT_OK_AND_ASSIGN(
      auto trainer, FakeTrainer::Create(Version(0), {.bucket_bytes = 64, .transport = transport}));
  ASSERT_OK(trainer->Publish(1, {victim.endpoint("victim")}).status());
  ASSERT_OK_AND_ASSIGN(const auto report,
                       trainer->Publish(1, {victim.endpoint("victim"), Endpoint("late", late)}));
  ExpectLive(late, Version(0), 1);
  EXPECT_EQ(report.replicas[1].fed_by, "");
  EXPECT_GT(report.sent_bytes, 0);
  EXPECT_OK(trainer->Barrier());
}

TEST(StreamReaderFault, UnderAvailableAReplicaThatDiesReadingDoesNotHoldTheOthersUp) {
  FakeRollout source(Version(0)), late(Version(0));
  RolloutProcess victim("kill", 2);
  ASSERT_OK_AND_ASSIGN(auto trainer,
                       FakeTrainer::Create(Version(0), {.bucket_bytes = 64,
                                                        .policy = trainer::UpdatePolicy::kAvailable,
                                                        .transport = "reshard"}));
  ASSERT_OK(trainer->Publish(1, {Endpoint("source", source)}).status());
  ASSERT_OK_AND_ASSIGN(const auto report,
                       trainer->Publish(1, {Endpoint("source", source), victim.endpoint("victim"),
                                            Endpoint("late", late)}));
  EXPECT_FALSE(report.replicas[1].committed);
  EXPECT_THAT(report.replicas[1].error,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("replica victim, rank 0")));
  EXPECT_EQ(report.replicas[2].fed_by, "source");
  ExpectLive(late, Version(0), 1);
  EXPECT_EQ(report.sent_bytes, 0);
}

}  // namespace
}  // namespace tandem
