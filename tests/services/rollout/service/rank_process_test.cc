// A replica of several tandem-rollout processes: it serves as one, and when a rank is killed or
// stopped its requests end with a status that names the rank, and its processes end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "tests/services/rollout/service/rank_processes.h"
#include "tests/support/addition_data.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::testing::HasSubstr;

TEST_F(RankProcessTest, ServesAsOneRankAndSaysWhereItsRanksAre) {
  Start(2, 60);
  std::vector<uint32_t> split;
  ASSERT_OK(Generate(100, split));
  v1::GetServerInfoResponse info;
  const auto context = rpc::MakeContext(kTimeout);
  ASSERT_OK(rpc::FromGrpcStatus(stub_->GetServerInfo(context.get(), {}, &info)));
  EXPECT_EQ(info.rank_addresses_size(), 2);
  EXPECT_EQ(info.rank_addresses(0), address_);

  const TempFolder folder;
  folder.Write("in.jsonl", R"({"ids": [1, 80, 147]})");
  const ProgramResult whole =
      RunProgram("tandem", {"generate", "--model", testing::TestData(kStories), "--input",
                            folder / "in.jsonl", "--max-tokens", "100", "--temperature", "0",
                            "--set", "rollout.threads=1", "--json"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const auto ids = JsonLines(whole.out)[0]["ids"].get<std::vector<uint32_t>>();
  // It ends at an end-of-sequence id, if it meets one.
  ASSERT_LE(ids.size(), split.size());
  split.resize(ids.size());
  EXPECT_EQ(split, ids);

  ExpectTheSameAfterSleep(ids);

  // Rank 0 drains and tells the other to stop.
  ranks_[0]->Terminate();
  for (auto& rank : ranks_) {
    ASSERT_TRUE(rank->Wait(kTimeout));
    EXPECT_OK(rank->ExitStatus()) << rank->name();
  }
}

// Its logits are those of transformers.
TEST_F(RankProcessTest, ServesARewardModel) {
  const char* const source = std::getenv("TANDEM_SOURCE");
  const std::string folder = absl::StrCat(source == nullptr ? "." : source,
                                          "/tests/services/rollout/engine/reward_models");
  const nlohmann::json golden =
      nlohmann::json::parse(testing::ReadWhole(folder + "/golden.json"))["llama"];
  model_ = folder + "/llama";
  Start(2, 60);
  for (size_t i = 0; i < golden["sequences"].size(); ++i) {
    v1::ScoreRequest request;
    for (const nlohmann::json& id : golden["sequences"][i]) request.add_token_ids(id);
    v1::ScoreResponse response;
    const auto context = rpc::MakeContext(kTimeout);
    ASSERT_OK(rpc::FromGrpcStatus(stub_->Score(context.get(), request, &response)));
    ASSERT_EQ(response.class_logits_size(), 1);
    EXPECT_NEAR(response.class_logits(0), golden["logits"][i].get<double>(), 1e-5) << i;
    EXPECT_EQ(response.logprobs_size(), 0);
  }
  std::vector<uint32_t> ids;
  EXPECT_THAT(Generate(1, ids),
              testing::StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("reward model")));
}

struct Fault {
  const char* name;
  int signal;
  bool shared_memory;
};

class RankFaultTest : public RankProcessTest, public ::testing::WithParamInterface<Fault> {};

TEST_P(RankFaultTest, EndsItsRequestsWithTheRanksName) {
  const Fault& fault = GetParam();
  Start(3, 6, fault.shared_memory);
  std::vector<uint32_t> ids;
  const absl::Status status = Generate(500, ids, [&] { kill(ranks_[1]->pid(), fault.signal); });

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 ("));
  EXPECT_THAT(std::string(status.message()), ::testing::Not(HasSubstr("rank 2 (")));
  // The others end by themselves, with an error.
  for (const int rank : {0, 2}) {
    ASSERT_TRUE(ranks_[rank]->Wait(kTimeout)) << rank;
    EXPECT_EQ(ranks_[rank]->ExitDescription(), "exited with 1") << rank;
  }
  if (fault.signal == SIGSTOP) kill(ranks_[1]->pid(), SIGKILL);
}

TEST_P(RankFaultTest, IsNoticedWithoutRequests) {
  const Fault& fault = GetParam();
  Start(2, 5, fault.shared_memory);
  kill(ranks_[1]->pid(), fault.signal);
  ASSERT_TRUE(ranks_[0]->Wait(kTimeout));
  EXPECT_EQ(ranks_[0]->ExitDescription(), "exited with 1");
  EXPECT_THAT(testing::ReadWhole(folder_ / "log-0"), HasSubstr("rank 1 ("));
  if (fault.signal == SIGSTOP) kill(ranks_[1]->pid(), SIGKILL);
}

INSTANTIATE_TEST_SUITE_P(Faults, RankFaultTest,
                         ::testing::Values(Fault{"Killed", SIGKILL, true},
                                           Fault{"Stopped", SIGSTOP, true},
                                           Fault{"KilledOverGloo", SIGKILL, false},
                                           Fault{"StoppedOverGloo", SIGSTOP, false}),
                         [](const auto& info) { return info.param.name; });

TEST_F(RankProcessTest, AStoppedRankZeroIsGivenUpByTheOthers) {
  Start(2, 5);
  kill(ranks_[0]->pid(), SIGSTOP);
  ASSERT_TRUE(ranks_[1]->Wait(kTimeout));
  EXPECT_EQ(ranks_[1]->ExitDescription(), "exited with 1");
  kill(ranks_[0]->pid(), SIGKILL);
}

}  // namespace
}  // namespace tandem::rollout
