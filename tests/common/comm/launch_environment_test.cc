#include "common/comm/launch_environment.h"

#include <map>

#include "tests/support/status_matchers.h"

namespace tandem::comm {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<LaunchEnvironment> Read(const std::map<std::string, std::string>& variables) {
  return ReadLaunchEnvironment([&](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    if (it == variables.end()) return std::nullopt;
    return it->second;
  });
}

TEST(LaunchEnvironment, AnEmptyEnvironmentIsOneRank) {
  ASSERT_OK_AND_ASSIGN(const LaunchEnvironment e, Read({}));
  EXPECT_EQ(e.world_size, 1);
  EXPECT_EQ(e.rank, 0);
  EXPECT_EQ(e.master_port, 0);
}

TEST(LaunchEnvironment, ReadsTorchrun) {
  ASSERT_OK_AND_ASSIGN(const LaunchEnvironment e, Read({{"RANK", "5"},
                                                        {"WORLD_SIZE", "8"},
                                                        {"LOCAL_RANK", "1"},
                                                        {"LOCAL_WORLD_SIZE", "4"},
                                                        {"MASTER_ADDR", "node0"},
                                                        {"MASTER_PORT", "29500"}}));
  EXPECT_EQ(e.rank, 5);
  EXPECT_EQ(e.world_size, 8);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_world_size, 4);
  EXPECT_EQ(e.master_host, "node0");
  EXPECT_EQ(e.master_port, 29500);
}

TEST(LaunchEnvironment, ReadsSlurm) {
  ASSERT_OK_AND_ASSIGN(const LaunchEnvironment e, Read({{"SLURM_PROCID", "3"},
                                                        {"SLURM_NTASKS", "4"},
                                                        {"SLURM_LOCALID", "1"},
                                                        {"SLURM_NTASKS_PER_NODE", "2"},
                                                        {"MASTER_ADDR", "n"},
                                                        {"MASTER_PORT", "1"}}));
  EXPECT_EQ(e.rank, 3);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_world_size, 2);
}

TEST(LaunchEnvironment, ReadsLeaderWorkerSet) {
  ASSERT_OK_AND_ASSIGN(const LaunchEnvironment e, Read({{"LWS_WORKER_INDEX", "1"},
                                                        {"LWS_GROUP_SIZE", "2"},
                                                        {"LWS_LEADER_ADDRESS", "leader.svc"},
                                                        {"MASTER_PORT", "29500"}}));
  EXPECT_EQ(e.rank, 1);
  EXPECT_EQ(e.local_rank, 0);
  EXPECT_EQ(e.master_host, "leader.svc");
}

TEST(LaunchEnvironment, ReadsAStatefulSetsOrdinal) {
  ASSERT_OK_AND_ASSIGN(const LaunchEnvironment e, Read({{"POD_NAME", "tandem-trainer-2"},
                                                        {"WORLD_SIZE", "3"},
                                                        {"MASTER_ADDR", "tandem-trainer-0"},
                                                        {"MASTER_PORT", "29500"}}));
  EXPECT_EQ(e.rank, 2);
}

TEST(LaunchEnvironment, NamesTheVariableThatIsWrong) {
  EXPECT_THAT(Read({{"RANK", "1"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("WORLD_SIZE")));
  EXPECT_THAT(Read({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("RANK"), HasSubstr("0 to 1"), HasSubstr("'2'"))));
  EXPECT_THAT(Read({{"RANK", "x"}, {"WORLD_SIZE", "2"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'x'")));
  EXPECT_THAT(Read({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("MASTER_PORT is not set")));
  EXPECT_THAT(Read({{"POD_NAME", "trainer-x"}, {"WORLD_SIZE", "2"}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("POD_NAME"), HasSubstr("trainer-x"))));
}

TEST(LaunchEnvironment, SeveralRanksWithTlsWantASecret) {
  LaunchEnvironment environment;
  environment.master_host = "trainer-0";
  environment.master_port = 29500;
  EXPECT_OK(CheckGroupSecret(environment, /*has_tls=*/true));
  environment.world_size = 2;
  EXPECT_OK(CheckGroupSecret(environment, /*has_tls=*/false));
  EXPECT_THAT(CheckGroupSecret(environment, /*has_tls=*/true),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("TANDEM_GROUP_SECRET"), HasSubstr("openssl rand -hex 32"),
                             HasSubstr("trainer-0:29500"))));
  environment.group_secret = "0123456789abcdef";
  EXPECT_OK(CheckGroupSecret(environment, /*has_tls=*/true));
}

}  // namespace
}  // namespace tandem::comm
